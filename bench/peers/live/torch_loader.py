"""PyTorch DataLoader: two persistent processes, batches collated in them; SciPy's mel is faster here than torchaudio's."""
import common  # before NumPy: it sets the thread counts
import soundfile
import torch
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __init__(self, clips):
        self.clips = clips

    def __getitem__(self, index):
        clip = self.clips[index]
        return common.mel(soundfile.read(clip.wav, dtype="float32")[0]), common.tokens(clip.text)


def collate(samples):
    return tuple(torch.from_numpy(array) for array in common.collate(samples))


def batches(clips, order):
    torch.set_num_threads(1)
    return DataLoader(Clips(clips), batch_sampler=order.reshape(-1, common.BATCH).tolist(), num_workers=common.WORKERS,
                      persistent_workers=True, prefetch_factor=2, collate_fn=collate)


common.run("PyTorch DataLoader, SciPy mel", batches)
