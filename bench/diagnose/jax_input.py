"""JAX; the loop itself reads clips and computes mels with NumPy before every step."""
import numpy as np
from jax_model import made, train_step
from settings import choose, clips, until_time_is_up

N_FFT, WIDTH = choose.choice([1024, 2048]), choose.choice([64, 128])
bank = np.random.default_rng(0).random((N_FFT // 2 + 1, 80)).astype(np.float32)
paths = clips()


def mel_of(path):
    wave = np.load(path)
    frames = np.lib.stride_tricks.sliding_window_view(wave, N_FFT)[::256] * np.hanning(N_FFT)
    mel = np.log(np.abs(np.fft.rfft(frames)) @ bank + 1e-5)
    return np.resize(mel, (200, 80)).astype(np.float32)


def next_batch():
    return np.stack([mel_of(choose.choice(paths)) for _ in range(8)])


parameters = made(WIDTH)
for step in until_time_is_up():
    parameters, loss = train_step(parameters, next_batch())
    if step % 20 == 0:
        print(step, float(loss))
