import librosa
import numpy as np
from torch.utils.data import Dataset


class Clips(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        audio, rate = librosa.load(self.paths[i], sr=22050)  # expect: per-sample-audio=warning
        mel = librosa.feature.melspectrogram(y=audio, sr=rate, n_mels=80)  # expect: per-sample-audio
        return np.log(mel + 1e-5)
