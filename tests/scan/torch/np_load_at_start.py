import numpy as np
from torch.utils.data import Dataset


class Mels(Dataset):
    def __init__(self, path):
        self.mels = np.load(path)

    def __len__(self):
        return len(self.mels)

    def __getitem__(self, i):
        return self.mels[i]
