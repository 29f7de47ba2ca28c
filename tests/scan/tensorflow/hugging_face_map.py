import librosa
import tensorflow as tf
from datasets import load_dataset


def features(row):
    row["mel"] = librosa.feature.melspectrogram(y=row["audio"])
    return row


corpus = load_dataset("some/corpus").map(features)
