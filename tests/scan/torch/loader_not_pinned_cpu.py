import torch
from torch.utils.data import DataLoader

from corpus import SpeechCorpus

loader = DataLoader(SpeechCorpus("data"), batch_size=32, shuffle=True, num_workers=4)
for batch in loader:
    loss = model(batch)
    loss.backward()
    optimizer.step()
