import torch
from torch.utils.data import DataLoader

from corpus import ReadyBatches

loader = DataLoader(ReadyBatches("packs"), batch_size=None, shuffle=True)
model.to("cuda")
