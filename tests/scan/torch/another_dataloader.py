import torch
from mylib.data import DataLoader

loader = DataLoader(corpus, batch_size=8, shuffle=True)
for x in loader:
    loss = model(x.cuda())
    loss.backward()
    optimizer.step()
