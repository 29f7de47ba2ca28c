"""What the scripts of this folder share: their arguments, clips on disk, and for how long they train."""
import argparse
import random
import tempfile
import time

import numpy as np

arguments = argparse.ArgumentParser()
arguments.add_argument("--seed", type=int, default=0)
arguments.add_argument("--seconds", type=float, default=6)
arguments = arguments.parse_args()
choose = random.Random(arguments.seed)
numbers = np.random.default_rng(arguments.seed)


def clips(count=64, seconds=2.0):
    """Paths of made clips: float32 samples at 22,050 Hz in .npy files."""
    folder = tempfile.mkdtemp()
    for i in range(count):
        length = int(22050 * seconds * numbers.uniform(0.5, 1.5))
        np.save(f"{folder}/{i}.npy", numbers.standard_normal(length).astype(np.float32))
    return [f"{folder}/{i}.npy" for i in range(count)]


def until_time_is_up():
    """Counts steps for --seconds, from the second one on: the first one may compile."""
    yield 0
    step, end = 1, time.monotonic() + arguments.seconds
    while time.monotonic() < end:
        yield step
        step += 1
