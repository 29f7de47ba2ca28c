import torch

for step, batch in enumerate(loader):
    loss = model(batch)
    loss.backward()
    optimizer.step()
    if step % 1000 == 999:
        torch.save(model.state_dict(), f"{step}.pt")
