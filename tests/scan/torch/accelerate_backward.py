import torch
from accelerate import Accelerator

accelerator = Accelerator()


def train(model, loader, optimizer):
    for batch in loader:
        outputs = model(**batch)
        loss = outputs.loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        meter.add(loss.item())  # expect: host-sync-every-step
