import torch
from torch.utils.data import DataLoader

from corpus import SpeechCorpus

cuda = torch.cuda.is_available()
device = "cuda" if cuda else "cpu"
loader = DataLoader(SpeechCorpus("data"), batch_size=32, shuffle=True, num_workers=args.workers, pin_memory=cuda)
