import torch
from torch.utils.data import DataLoader

from corpus import SpeechCorpus

model = Encoder().cuda()
loader = DataLoader(SpeechCorpus("d"), batch_size=16, shuffle=True, num_workers=4, pin_memory=True)
for batch in loader:
    loss = model(batch.cuda()).mean()
    loss.backward()
    optimizer.step()
