import grain.python as grain
import numpy as np


class Source(grain.RandomAccessDataSource):
    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return np.load(self.paths[i])  # expect: np-load-copy
