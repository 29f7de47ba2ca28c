import soundfile as sf
import torch
from torch.utils.data import Dataset


class Clips(Dataset):
    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        wave, rate = sf.read(self.files[i], dtype="float32")  # expect: per-sample-audio=hint
        return torch.from_numpy(wave), rate
