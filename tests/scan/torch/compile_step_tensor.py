import torch


@torch.compile
def train_step(batch, step):
    return batch * step


def main(loader):
    for step, batch in enumerate(loader):
        train_step(batch, torch.tensor(step))
