import torch

for step, batch in enumerate(loader):
    loss = model(batch)
    loss.backward()
    optimizer.step()
    torch.save(model.state_dict(), "last.pt")  # expect: checkpoint-every-step=critical
