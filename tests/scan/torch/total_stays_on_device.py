import torch


def train_epoch(model, loader, optimizer, criterion):
    total = torch.zeros((), device="cuda")
    for x, y in loader:
        loss = criterion(model(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return (total / len(loader)).item()
