import torch


def main(model, loader, optimizer):
    for epoch in range(100):
        loss = train_one_epoch(model, loader, optimizer)
        torch.save({"model": model.state_dict(), "loss": loss}, "last.pt")
