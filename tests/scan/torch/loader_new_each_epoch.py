import torch
from torch.utils.data import DataLoader

from corpus import SpeechCorpus

for epoch in range(20):
    loader = DataLoader(SpeechCorpus(f"part-{epoch}"), batch_size=8, shuffle=True, num_workers=2, pin_memory=True)
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        optimizer.step()
