import numpy as np
from torch.utils.data import Dataset


class Pairs(Dataset):
    def __getitem__(self, i):
        data = np.load(self.files[i])
        return data["mel"], data["tokens"]
