import torch
from torch.utils.data import DataLoader

from corpus import SpeechCorpus

loader = DataLoader(SpeechCorpus("data"), batch_size=8, shuffle=True, num_workers=2, pin_memory=True)
for batch in loader:
    loss = model(batch.cuda())
    loss.backward()
    optimizer.step()
