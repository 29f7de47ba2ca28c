import math

import torch


def train(model, loader, optimizer, criterion, device):
    for x, y in loader:
        loss = criterion(model(x.to(device)), y.to(device))
        if not math.isfinite(loss.item()):  # expect: host-sync-every-step
            raise RuntimeError("loss is not finite")
        loss.backward()
        optimizer.step()
