import torch

for x in loader:
    loss = model(x.cuda())
    loss.backward()
    optimizer.step()
    text = "# penstock: ignore", loss.item()  # expect: host-sync-every-step
