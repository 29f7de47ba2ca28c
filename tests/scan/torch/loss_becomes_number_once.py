import torch


def train(model, loader, optimizer, device):
    for x in loader:
        loss = model(x.to(device))
        loss.backward()
        optimizer.step()
        value = loss.item()  # expect: host-sync-every-step
        average = 0.9 * average + 0.1 * float(value)
