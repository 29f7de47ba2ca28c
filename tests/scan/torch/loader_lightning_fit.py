import lightning as L
from torch.utils.data import DataLoader

from corpus import SpeechCorpus

train = DataLoader(SpeechCorpus("data/train"), batch_size=8)  # expect: loader-no-workers
valid = DataLoader(SpeechCorpus("data/valid"), batch_size=8, num_workers=2)
trainer = L.Trainer(max_epochs=3)
trainer.fit(model, train, valid)
