import torch
from torch.utils.data import DataLoader

from corpus import SpeechCorpus

options = {"num_workers": 8, "pin_memory": True}
loader = DataLoader(SpeechCorpus("data"), batch_size=32, shuffle=True, **options)
model.to("cuda")
