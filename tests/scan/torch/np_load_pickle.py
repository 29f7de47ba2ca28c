import numpy as np
from torch.utils.data import Dataset


class Objects(Dataset):
    def __getitem__(self, i):
        return np.load(self.files[i], allow_pickle=True)
