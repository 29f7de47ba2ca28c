import torch
from torch.utils.data import DataLoader

from corpus import SpeechCorpus

WORKERS = 6


def main(model, optimizer, epochs):
    loader = DataLoader(SpeechCorpus("data"), 32, shuffle=True, num_workers=WORKERS, pin_memory=True)  # expect: loader-not-persistent=hint
    for epoch in range(epochs):
        for batch in loader:
            loss = model(batch.cuda())
            loss.backward()
            optimizer.step()
