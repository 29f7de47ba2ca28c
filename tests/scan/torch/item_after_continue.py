import torch


def train(model, loader, optimizer):
    for step, batch in enumerate(loader):
        loss = model(batch.cuda())
        loss.backward()
        optimizer.step()
        if (step + 1) % 50:
            continue
        print(step, loss.item())
