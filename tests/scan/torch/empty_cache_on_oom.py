import torch

for x in loader:
    try:
        loss = model(x.cuda())
        loss.backward()
        optimizer.step()
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
