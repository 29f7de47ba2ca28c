import torch


@torch.compile
def step(x, w):
    y = x @ w
    print("y", y.shape)  # expect: print-under-jit=warning
    return y.relu()
