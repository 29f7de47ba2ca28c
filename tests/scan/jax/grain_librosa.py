import grain.python as grain
import librosa


def features(path):
    audio, rate = librosa.load(path)  # expect: per-sample-audio
    return audio


ds = grain.MapDataset.source(paths).map(features).batch(16)
