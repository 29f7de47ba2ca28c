import librosa
from torch.utils.data import Dataset


class Clips(Dataset):
    def __getitem__(self, i):
        if i in self.cache:
            return self.cache[i]
        self.cache[i] = librosa.load(self.paths[i])[0]
        return self.cache[i]
