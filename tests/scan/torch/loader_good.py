import torch
from torch.utils.data import DataLoader

from corpus import SpeechCorpus

loader = DataLoader(
    SpeechCorpus("data"), batch_size=32, shuffle=True, num_workers=8, pin_memory=True, persistent_workers=True, drop_last=True
)
for epoch in range(10):
    for batch in loader:
        loss = model(batch.to("cuda", non_blocking=True))
        loss.backward()
        optimizer.step()
