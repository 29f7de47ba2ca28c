import time

import torch


def benchmark(model, loader, optimizer):
    for x in loader:
        start = time.perf_counter()
        loss = model(x.cuda())
        loss.backward()
        optimizer.step()
        loss.item()
        times.append(time.perf_counter() - start)
