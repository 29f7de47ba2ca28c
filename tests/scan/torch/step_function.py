import torch

device = torch.device("cuda:0")


def train_step(model, optimizer, batch):
    loss = model(batch.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()  # expect: host-sync-every-step


def main(model, optimizer, loader):
    for batch in loader:
        loss = train_step(model, optimizer, batch)
        averages.update(loss)
