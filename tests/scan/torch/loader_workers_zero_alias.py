import torch
import torch.utils.data as tud

from corpus import LibriSpeech

loader = tud.DataLoader(  # expect: loader-no-workers
    LibriSpeech("train-clean-100"),
    batch_size=16,
    shuffle=True,
    num_workers=0,
    pin_memory=True,
)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
