"""What the peers share on live audio: the clips, tokens, the mel, and the check of a first batch.

A peer gives `batches(clips, order)`, an iterator over (mel [16, 800, 80] f32, tokens [16, 200] i32, frames [16], lengths [16]), and
calls run(). The folder of the dataset (LJSpeech layout) is the only argument; one JSON line is the result, with the keys of
`penstock bench --json`.
"""
import pathlib
import sys
from typing import NamedTuple

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
import loop  # before NumPy: it sets the thread counts
from loop import BATCH, BINS, WORKERS

import librosa
import numpy as np
import scipy.fft

FRAMES, TOKENS = 800, 200
RATE, FFT, HOP, TOP, FLOOR = 22050, 1024, 256, 8000.0, 1e-5

WINDOW = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FFT) / FFT)).astype(np.float32)
FILTERS = np.ascontiguousarray(librosa.filters.mel(sr=RATE, n_fft=FFT, n_mels=BINS, fmin=0, fmax=TOP).T)  # [513, 80]
USED = int(np.flatnonzero(FILTERS.any(axis=1))[-1]) + 1  # nothing above fmax counts, so neither abs nor matmul goes there

CODES = np.zeros(256, np.int32)
CODES[32:127] = np.arange(1, 96)


class Clip(NamedTuple):
    wav: str
    text: str


def read_clips(root):
    with open(f"{root}/metadata.csv", encoding="utf-8") as lines:
        rows = [line.rstrip("\n").split("|") for line in lines]
    return [Clip(f"{root}/wavs/{row[0]}.wav", row[-1]) for row in rows]


def tokens(text):
    return CODES[np.frombuffer(text.encode("latin-1", "replace"), np.uint8)]


def mel(audio):
    """[frames, 80] in float32, without a pass that could be spared."""
    half = FFT // 2
    padded = np.concatenate((audio[half:0:-1], audio, audio[-2 : -half - 2 : -1]))
    frames = np.lib.stride_tricks.sliding_window_view(padded, FFT)[::HOP] * WINDOW
    out = np.abs(scipy.fft.rfft(frames, axis=1, overwrite_x=True)[:, :USED]) @ FILTERS[:USED]
    return np.log(np.maximum(out, FLOOR, out=out), out=out)


def mel_librosa(audio):
    magnitude = librosa.feature.melspectrogram(y=audio, sr=RATE, n_fft=FFT, hop_length=HOP, power=1.0, n_mels=BINS, fmax=TOP,
                                               pad_mode="reflect")
    return np.log(np.maximum(magnitude, FLOOR)).T.astype(np.float32)


def collate(samples):
    return loop.pad(samples, FRAMES, TOKENS)


def check(batch, clips):
    """Every row is some clip, whole: its tokens, its mel as librosa computes it, zeros behind both."""
    import soundfile
    mels, codes, frames, lengths = (np.asarray(a) for a in batch)
    assert mels.shape == (BATCH, FRAMES, BINS) and mels.dtype == np.float32, (mels.shape, mels.dtype)
    assert codes.shape == (BATCH, TOKENS) and codes.dtype == np.int32, (codes.shape, codes.dtype)
    by_tokens = {}
    for clip in clips:
        by_tokens.setdefault(tokens(clip.text)[:TOKENS].tobytes(), []).append(clip)
    worst = 0.0
    for row, (n, length) in enumerate(zip(frames.reshape(-1), lengths.reshape(-1), strict=True)):
        assert not mels[row, n:].any() and not codes[row, length:].any(), f"row {row}: padding is not zero"
        same_text = by_tokens.get(codes[row, :length].tobytes(), ())
        expected = [mel_librosa(soundfile.read(c.wav, dtype="float32")[0])[:FRAMES] for c in same_text]
        distances = [np.abs(e - mels[row, :n]).max() for e in expected if len(e) == n]
        assert distances, f"row {row}: no clip has these tokens and {n} frames"
        worst = max(worst, float(min(distances)))
    assert worst < 2e-3, f"the mel is {worst:.2g} away from librosa's"
    return {"mel_distance": worst}


def run(name, batches):
    clips = read_clips(sys.argv[1])
    loop.run(name, batches, clips, [clip.wav for clip in clips], check)
