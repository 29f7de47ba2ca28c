import torch


def train(model, loader, optimizer, device):
    for x in loader:
        loss = model(x.to(device))
        loss.backward()
        optimizer.step()
        torch.cuda.empty_cache()  # expect: cleanup-in-loop=critical
