import gc

import torch

gc.disable()
for step, x in enumerate(loader):
    loss = model(x)
    loss.backward()
    optimizer.step()
    if step % 1000 == 0:
        gc.collect()
