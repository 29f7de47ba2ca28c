import torch


def apply(optimizers, losses, device):
    for optimizer in optimizers:
        optimizer.step()
        norms.append(grad_norm(optimizer).to(device).item())
