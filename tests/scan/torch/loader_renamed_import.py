import torch
from torch.utils.data import DataLoader as DL

from corpus import Clips


def loaders(root):
    return DL(Clips(root), 8, True)  # expect: loader-no-workers


model = torch.nn.Linear(80, 40).cuda()
