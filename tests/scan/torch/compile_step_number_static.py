import torch

scale = torch.compile(scale_by, dynamic=False)
for i in range(1000):
    out = scale(x, i * 2)  # expect: python-number-argument=critical
