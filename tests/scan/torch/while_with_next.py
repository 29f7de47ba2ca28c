import torch


def train(model, loader, optimizer, criterion, device, steps):
    data = iter(loader)
    step = 0
    while step < steps:
        x, y = next(data)
        loss = criterion(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        curve.append(loss.cpu())  # expect: host-sync-every-step
        step += 1
