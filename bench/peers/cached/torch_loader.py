"""PyTorch DataLoader in the consumer's own process: here its worker processes cost more than they add, since every batch of theirs
crosses to the consumer in new shared memory. Fastest with tcmalloc preloaded."""
import common  # before NumPy: it sets the thread counts
import torch
from torch.utils.data import DataLoader


def collate(samples):
    return tuple(torch.from_numpy(array) for array in common.collate(samples))


def batches(clips, order):
    torch.set_num_threads(1)
    return DataLoader(common.mapped(clips), batch_sampler=order.reshape(-1, common.BATCH).tolist(), collate_fn=collate)


common.run("PyTorch DataLoader, no workers, tcmalloc", batches)
