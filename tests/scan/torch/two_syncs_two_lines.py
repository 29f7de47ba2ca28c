import torch


def train(model, loader, optimizer, criterion, device):
    for x, y in loader:
        optimizer.zero_grad()
        out = model(x.to(device))
        loss = criterion(out, y.to(device))
        loss.backward()
        optimizer.step()
        total += loss.item()  # expect: host-sync-every-step
        correct += (out.argmax(1) == y.to(device)).sum().item()  # expect: host-sync-every-step
