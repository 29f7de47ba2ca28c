import pathlib

import librosa
import numpy as np
import torch

for path in pathlib.Path("wavs").glob("*.wav"):
    audio, _ = librosa.load(path)
    np.save(path.with_suffix(".npy"), librosa.feature.melspectrogram(y=audio))
torch.save({"done": True}, "done.pt")
