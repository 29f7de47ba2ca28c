try:
    import torch
    from torch.utils.data import DataLoader
except ImportError:
    torch = None
    DataLoader = None


def train(model, optimizer, data):
    for x in DataLoader(data, batch_size=8):  # expect: loader-no-workers
        loss = model(x.cuda())
        loss.backward()
        optimizer.step()
