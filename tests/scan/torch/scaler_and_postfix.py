import torch
from tqdm import tqdm


def train_epoch(model, loader, optimizer, scaler, criterion):
    bar = tqdm(loader)
    for x, y in bar:
        with torch.autocast("cuda"):
            loss = criterion(model(x.cuda()), y.cuda())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        bar.set_postfix(loss=loss.item())  # expect: host-sync-every-step
