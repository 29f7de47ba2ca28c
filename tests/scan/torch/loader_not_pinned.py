import torch
from torch.utils.data import DataLoader

from corpus import SpeechCorpus


def train(model, optimizer, workers):
    loader = DataLoader(SpeechCorpus("data"), batch_size=32, shuffle=True, num_workers=workers)  # expect: loader-not-pinned=hint
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        optimizer.step()
