import torch


def train(model, loader, optimizer, device):
    for x in loader:
        loss = model(x.to(device))
        loss.backward()
        optimizer.step()
        total += loss.item()  # penstock: ignore
        other += loss.item()  # penstock: ignore[host-sync-every-step]
        third += loss.item()  # penstock: ignore[cleanup-in-loop]  # expect: host-sync-every-step
        torch.save(  # penstock: ignore[checkpoint-every-step, cleanup-in-loop]
            model.state_dict(), "x.pt"
        )
