"""What the peers share: the clips and their order, tokens, the mel, padding, the check of a first batch and the measuring loop.

A peer gives `batches(clips, order)`, an iterator over (mel [16, 800, 80] f32, tokens [16, 200] i32, frames [16], lengths [16]), and
calls run(). The folder of the dataset (LJSpeech layout) is the only argument; one JSON line is the result, with the keys of
`penstock bench --json`.
"""
import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")  # two workers already fill two cores
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import json
import multiprocessing
import pathlib
import sys
import time
from typing import NamedTuple

import librosa
import numpy as np
import scipy.fft

BATCH, FRAMES, TOKENS = 16, 800, 200
RATE, FFT, HOP, BINS, TOP, FLOOR = 22050, 1024, 256, 80, 8000.0, 1e-5
WORKERS = 2
WARM_UP, SECONDS = 24, 5.0  # batches; the least that a measurement lasts

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


def epochs(clips, samples=400_000):
    """Indices of so many samples, a whole number of batches: one permutation of the clips after another."""
    random = np.random.default_rng(1)
    passes = -(-samples // clips)
    return np.concatenate([random.permutation(clips) for _ in range(passes)])[: samples // BATCH * BATCH]


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
    """A list of (mel, tokens) as one batch, padded with zeros or cut."""
    batch = (np.zeros((len(samples), FRAMES, BINS), np.float32), np.zeros((len(samples), TOKENS), np.int32),
             np.empty(len(samples), np.int32), np.empty(len(samples), np.int32))
    for row, sample in enumerate(samples):
        for values, out, lengths in zip(sample, batch[:2], batch[2:]):
            lengths[row] = length = min(len(values), out.shape[1])
            out[row, :length] = values[:length]
    return batch


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
    return worst


def touch(batch):
    mels, codes, frames, lengths = batch
    return float(mels[0, 0, 0]) + int(codes[0, 0]) + int(frames[0]) + int(lengths[0])


def cpu_seconds():
    """Of this process and of its living workers."""
    total = time.process_time()
    for child in multiprocessing.active_children():
        fields = pathlib.Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def measure(batches):
    for _ in range(WARM_UP):
        touch(next(batches))
    stamps = [time.perf_counter()]
    cpu = cpu_seconds()
    while stamps[-1] - stamps[0] < SECONDS:
        touch(next(batches))
        stamps.append(time.perf_counter())
    cpu = cpu_seconds() - cpu
    gaps = np.diff(stamps)
    samples = len(gaps) * BATCH
    return {"samples": samples, "samples_per_second": samples / gaps.sum(), "cpu_seconds_per_1000": cpu / samples * 1000,
            "batch_ms": {"mean": gaps.mean() * 1e3, "cv": gaps.std() / gaps.mean()}}


def run(name, batches):
    clips = read_clips(sys.argv[1])
    for clip in clips:  # into the page cache
        pathlib.Path(clip.wav).read_bytes()
    stream = iter(batches(clips, epochs(len(clips))))
    distance = check(next(stream), clips)
    print(json.dumps({"peer": name, **measure(stream), "mel_distance": distance}), flush=True)
    for worker in multiprocessing.active_children():
        worker.terminate()
    os._exit(0)  # a pool that still prefetches need not be joined
