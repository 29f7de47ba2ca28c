import torch
from torch.utils.data import DataLoader

from corpus import SpeechCorpus

loader = DataLoader(  # expect: loader-not-persistent
    SpeechCorpus("data"), batch_size=8, shuffle=True, num_workers=2, pin_memory=True, persistent_workers=False
)
for epoch in range(20):
    train_one_epoch(model, loader, optimizer, device="cuda")
