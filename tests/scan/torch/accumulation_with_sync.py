import torch


def train(model, loader, optimizer, device, every=4):
    for i, batch in enumerate(loader):
        loss = model(batch.to(device)) / every
        loss.backward()
        log.append(loss.item() * every)  # expect: host-sync-every-step
        if (i + 1) % every == 0:
            optimizer.step()
            optimizer.zero_grad()
