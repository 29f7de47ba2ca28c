import torch
from torch.utils.data import DataLoader, TensorDataset

features = torch.load("features.pt")
loader = DataLoader(TensorDataset(features["x"], features["y"]), batch_size=256, shuffle=True)
for x, y in loader:
    loss = model(x.cuda(), y.cuda())
    loss.backward()
    optimizer.step()
