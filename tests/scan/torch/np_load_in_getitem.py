import numpy as np
import torch
from torch.utils.data import Dataset


class Mels(Dataset):
    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        mel = np.load(self.files[i])  # expect: np-load-copy=hint
        start = np.random.randint(0, len(mel) - 32)
        return torch.from_numpy(mel[start : start + 32])
