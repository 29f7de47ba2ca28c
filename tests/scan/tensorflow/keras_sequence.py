import librosa
from tensorflow import keras


class Clips(keras.utils.Sequence):
    def __len__(self):
        return len(self.files) // self.batch

    def __getitem__(self, index):
        rows = []
        for path in self.files[index * self.batch : (index + 1) * self.batch]:
            rows.append(librosa.load(path)[0])  # expect: per-sample-audio
        return rows
