import numpy as np
import torch
from torch.utils.data import Dataset


class Mels(Dataset):
    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        return torch.from_numpy(np.load(self.files[i], mmap_mode="r")[:32].copy())
