"""PyTorch; mels are computed in the Dataset, each time anew, by the loop itself or by too few workers."""
import numpy as np
import torch
from settings import choose, clips, until_time_is_up
from torch.utils.data import DataLoader, Dataset

N_FFT, WORKERS, WIDTH = choose.choice([1024, 2048]), choose.choice([0, 0, 1]), choose.choice([64, 128])


class Clips(Dataset):
    def __init__(self, paths):
        self.paths = paths
        self.bank = np.random.default_rng(0).random((N_FFT // 2 + 1, 80)).astype(np.float32)

    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        wave = np.load(self.paths[i % len(self.paths)])
        frames = np.lib.stride_tricks.sliding_window_view(wave, N_FFT)[::128] * np.hanning(N_FFT)
        mel = np.log(np.abs(np.fft.rfft(frames)) @ self.bank + 1e-5)
        return torch.from_numpy(np.resize(mel, (200, 80)).astype(np.float32))


torch.set_num_threads(1)  # the device; the other cores are the host's
model = torch.nn.Sequential(torch.nn.Linear(80, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 80))
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(Clips(clips()), batch_size=16, num_workers=WORKERS)
for step, mel in zip(until_time_is_up(), loader):
    loss = torch.nn.functional.l1_loss(model(mel), mel)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
