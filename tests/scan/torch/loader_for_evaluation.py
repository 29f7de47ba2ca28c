import torch
from torch.utils.data import DataLoader

from corpus import SpeechCorpus

test_loader = DataLoader(SpeechCorpus("data/test"), batch_size=1)
model.to("cuda")
