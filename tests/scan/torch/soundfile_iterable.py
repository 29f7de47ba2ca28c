import soundfile
from torch.utils.data import IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        for path in self.paths:
            wave, _ = soundfile.read(path)  # expect: per-sample-audio
            yield wave
