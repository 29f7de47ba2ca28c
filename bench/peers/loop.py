"""What the peers of every task share: the order of the samples, padding, and the loop that measures.

Import it before NumPy: it sets the thread counts.
"""
import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")  # two workers already fill two cores
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import json
import multiprocessing
import pathlib
import time

import numpy as np

BATCH, BINS = 16, 80
WORKERS = 2
WARM_UP, SECONDS = 24, 5.0  # batches; the least that a measurement lasts


def epochs(clips, samples=400_000):
    """Indices of so many samples, a whole number of batches: one permutation of the clips after another."""
    random = np.random.default_rng(1)
    passes = -(-samples // clips)
    return np.concatenate([random.permutation(clips) for _ in range(passes)])[: samples // BATCH * BATCH]


def pad(samples, frames, tokens):
    """A list of (mel, tokens) as one batch, padded with zeros or cut."""
    batch = (np.zeros((len(samples), frames, BINS), np.float32), np.zeros((len(samples), tokens), np.int32),
             np.empty(len(samples), np.int32), np.empty(len(samples), np.int32))
    for row, sample in enumerate(samples):
        for values, out, lengths in zip(sample, batch[:2], batch[2:]):
            lengths[row] = length = min(len(values), out.shape[1])
            out[row, :length] = values[:length]
    return batch


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
    cpu, own = cpu_seconds(), time.thread_time()
    while stamps[-1] - stamps[0] < SECONDS:
        touch(next(batches))
        stamps.append(time.perf_counter())
    cpu, own = cpu_seconds() - cpu, time.thread_time() - own
    gaps = np.diff(stamps)
    samples = len(gaps) * BATCH
    return {"samples": samples, "samples_per_second": samples / gaps.sum(), "cpu_seconds_per_1000": cpu / samples * 1000,
            "thread_us_per_batch": own / len(gaps) * 1e6, "batch_ms": {"mean": gaps.mean() * 1e3, "cv": gaps.std() / gaps.mean()}}


def run(name, batches, clips, files, check):
    """Measures `batches(clips, order)` with its files in the page cache, after `check(batch, clips)` of the first one. One JSON line
    is the result, with the keys of `penstock bench --json` and what the check returned."""
    for file in files:
        pathlib.Path(file).read_bytes()
    stream = iter(batches(clips, epochs(len(clips))))
    checked = check(next(stream), clips)
    print(json.dumps({"peer": name, **measure(stream), **checked}), flush=True)
    for worker in multiprocessing.active_children():
        worker.terminate()
    os._exit(0)  # a pool that still prefetches need not be joined
