"""A loop of small steps, the same at each call; prints its CPU seconds. What a sampler costs shows here first."""
import time

import torch

torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
x = torch.randn(32, 64)
for step in range(3000):
    if step == 500:
        begun = time.process_time()
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(time.process_time() - begun)
