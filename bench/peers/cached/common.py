"""What the peers share on computed features: the clips as .npy files and the check of a first batch.

A peer gives `batches(clips, order)`, an iterator over (mel [16, 880, 80] f32, tokens [16, 256] i32, frames [16], lengths [16]), and
calls run(). A folder with mels/<id>.npy ([frames, 80] f32) and tokens/<id>.npy (i32), as `penstock cache export --npy` writes it, is
the only argument; one JSON line is the result, with the keys of `penstock bench --json`.
"""
import pathlib
import sys
from typing import NamedTuple

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
import loop  # before NumPy: it sets the thread counts
from loop import BATCH, BINS, WORKERS

import numpy as np

FRAMES, TOKENS = 880, 256
HEADER = 128  # bytes before the values: NumPy aligns them to 64, and the header of these arrays needs more than one


class Clip(NamedTuple):
    mel: str
    tokens: str


def read_clips(root):
    clips = [Clip(str(mel), f"{root}/tokens/{mel.name}") for mel in sorted(pathlib.Path(root, "mels").glob("*.npy"))]
    for clip in clips:
        mel, tokens = np.load(clip.mel, mmap_mode="r"), np.load(clip.tokens, mmap_mode="r")
        assert mel.offset == tokens.offset == HEADER, f"{clip.mel}: its header, or that of its tokens, is not {HEADER} bytes"
        assert mel.dtype == np.float32 and mel.shape[1:] == (BINS,) and len(mel) <= FRAMES, f"{clip.mel}: {mel.dtype} {mel.shape}"
        assert tokens.dtype == np.int32 and len(tokens) <= TOKENS, f"{clip.tokens}: {tokens.dtype} {tokens.shape}"
    return clips


def mapped(clips):
    """(mel, tokens) of every clip as views of its mapped files: for loaders whose reading is Python, faster than to open a file for
    each sample (np.load, np.fromfile)."""
    return [tuple(np.asarray(np.load(file, mmap_mode="r")) for file in clip) for clip in clips]


def collate(samples):
    return loop.pad(samples, FRAMES, TOKENS)


def check(batch, clips):
    """Every row is some clip, whole and to the bit, with zeros behind it; no clip comes twice."""
    mels, codes, frames, lengths = (np.asarray(a) for a in batch)
    assert mels.shape == (BATCH, FRAMES, BINS) and mels.dtype == np.float32, (mels.shape, mels.dtype)
    assert codes.shape == (BATCH, TOKENS) and codes.dtype == np.int32, (codes.shape, codes.dtype)
    wanted = {tuple(np.load(file).tobytes() for file in clip) for clip in clips}
    for row, (n, length) in enumerate(zip(frames.reshape(-1), lengths.reshape(-1), strict=True)):
        assert not mels[row, n:].any() and not codes[row, length:].any(), f"row {row}: padding is not zero"
        wanted.remove((mels[row, :n].tobytes(), codes[row, :length].tobytes()))  # KeyError: no clip, or one that was there before
    return {}


def run(name, batches):
    clips = read_clips(sys.argv[1])
    loop.run(name, batches, clips, [file for clip in clips for file in clip], check)
