import torch
from torch.utils.data import DataLoader

from corpus import SpeechCorpus

train_set = SpeechCorpus("data/train")
train_loader = DataLoader(train_set, batch_size=32, shuffle=True)  # expect: loader-no-workers=warning


def train(model, optimizer):
    for batch in train_loader:
        loss = model(batch.to("cuda"))
        loss.backward()
        optimizer.step()
