import torch
from torch import nn


def train(model: nn.Module, loader, optimizer, device):
    criterion = nn.CrossEntropyLoss()
    for step, (inputs, targets) in enumerate(loader):
        loss = criterion(model(inputs.to(device)), targets.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 100 == 0:
            print(f"{step:6d} {loss.item():.4f}")
