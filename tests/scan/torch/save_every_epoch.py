import torch

for epoch in range(10):
    for batch in loader:
        loss = model(batch)
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), f"{epoch}.pt")
