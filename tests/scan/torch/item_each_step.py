import torch
from torch import nn


def train(model: nn.Module, loader, optimizer, device):
    criterion = nn.CrossEntropyLoss()
    running = 0.0
    for inputs, targets in loader:
        inputs, targets = inputs.to(device), targets.to(device)
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        running += loss.item()  # expect: host-sync-every-step=warning
    return running
