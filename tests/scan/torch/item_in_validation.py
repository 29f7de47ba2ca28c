import torch


@torch.no_grad()
def validate(model, loader, criterion, device="cuda"):
    total = 0.0
    for x, y in loader:
        total += criterion(model(x.to(device)), y.to(device)).item()
    return total / len(loader)
