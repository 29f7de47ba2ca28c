"""torch's real FFT (MKL, one thread) alone, over frames that are already windowed: `torch_rfft.py FRAMES` prints us per frame.

Every call returns a new tensor: `out=` costs a copy and is slower."""
import statistics
import sys
import time

import torch

ROUNDS, FRAMES_A_ROUND = 31, 20_000

torch.set_num_threads(1)
frames = int(sys.argv[1])
windowed = torch.randn(frames, 1024) * torch.hann_window(1024)
calls = -(-FRAMES_A_ROUND // frames)
rounds = []
with torch.inference_mode():
    for _ in range(ROUNDS):
        start = time.thread_time()
        for _ in range(calls):
            torch.fft.rfft(windowed)
        rounds.append((time.thread_time() - start) / (calls * frames) * 1e6)
print(statistics.median(rounds))
