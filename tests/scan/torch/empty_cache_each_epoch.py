import gc

import torch

for epoch in range(10):
    for x in loader:
        loss = model(x.cuda())
        loss.backward()
        optimizer.step()
    gc.collect()
    torch.cuda.empty_cache()
