import torch


def train_step(model, optimizer, batch):
    loss = model(batch.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def main(model, optimizer, loader):
    for step, batch in enumerate(loader):
        loss = train_step(model, optimizer, batch)
        if step % 200 == 0:
            print(step, loss.item())
