import gc

import torch

for x in loader:
    loss = model(x)
    loss.backward()
    optimizer.step()
    gc.collect()  # expect: cleanup-in-loop=warning
