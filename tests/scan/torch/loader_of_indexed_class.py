import torch
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], torch.as_tensor(self.y[i])


loader = DataLoader(Pairs(x, y), batch_size=64, shuffle=True)
model.to("cuda")
