import librosa
import torch


class Clips(torch.utils.data.Dataset):
    def __getitem__(self, index):
        path, text = self.items[index]
        return self.read(path), self.encode(text)

    def read(self, path):
        wave, _ = librosa.load(path, sr=None)  # expect: per-sample-audio
        return torch.from_numpy(wave)

    def encode(self, text):
        return torch.tensor([self.symbols[c] for c in text])
