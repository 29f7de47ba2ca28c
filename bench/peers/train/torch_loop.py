"""Trains the twin of the trainer's nano model in a plain PyTorch loop: AdamW (fused), clipping, averaged weights.

    torch_loop.py DATA loader|feed fixed|SHAPES STEPS

`loader`: a DataLoader with two processes that compute the mels, and padding to the longest clip. `feed`: the batches that
`penstock train --batch-size 16` takes, in their order. One JSON line is the result; the first WARM_UP steps do not count.
"""
import json
import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "live"))
import common  # before NumPy: it sets the thread counts of the DataLoader's processes
import loop
import numpy as np
import penstock
import soundfile
import torch
from torch.utils.data import DataLoader, Dataset

import tts

BATCH, THREADS, WARM_UP = 16, 2, 5
LEARNING_RATE, CLIP, DECAY = 1e-3, 1.0, 0.999


class Clips(Dataset):
    def __init__(self, clips):
        self.clips = clips

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        clip = self.clips[index]
        return common.mel(soundfile.read(clip.wav, dtype="float32")[0]), common.tokens(clip.text)


def from_loader(data, shape):
    """Endless batches (tokens, token_lengths, mel, mel_lengths), all of one shape."""
    _, longest_text, longest_mel = shape

    def collate(samples):
        mel, tokens, frames, lengths = (torch.from_numpy(a) for a in loop.pad(samples, longest_mel, longest_text))
        return tokens, lengths, mel, frames

    loader = DataLoader(Clips(common.read_clips(data)), BATCH, shuffle=True, drop_last=True, num_workers=2, persistent_workers=True,
                        collate_fn=collate)
    while True:
        yield from loader


def from_feed(feed):
    for batch in feed.torch():
        yield batch.tokens, batch.token_lengths, batch.mel, batch.mel_lengths


def main(data, source, shapes, steps):
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    feed = penstock.Feed(data, batch_size=BATCH, shapes=1 if shapes == "fixed" else int(shapes))
    batches = from_feed(feed) if source == "feed" else from_loader(data, feed.shapes[0])
    model = tts.Tts(n_symbols=256)
    averaged = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.01, fused=True)
    valid, padded, waits, computes = [], [], [], []
    for _ in range(WARM_UP + steps):
        asked = time.perf_counter()
        tokens, token_lengths, mel, mel_lengths = next(batches)
        got = time.perf_counter()
        loss = tts.weighted(model(tokens, token_lengths, mel, mel_lengths), mel_lengths)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            torch._foreach_lerp_(averaged, list(model.parameters()), 1 - DECAY)
        waits.append(got - asked)
        computes.append(time.perf_counter() - got)
        valid.append(int(mel_lengths.sum()))
        padded.append(mel.shape[0] * mel.shape[1])
    assert np.isfinite(loss.item())
    valid, padded, waits, computes = (np.array(a[WARM_UP:]) for a in (valid, padded, waits, computes))
    print(json.dumps({"frames_per_second": valid.sum() / (waits + computes).sum(), "padding": 1 - valid.sum() / padded.sum(),
                      "step_ms": computes.mean() * 1e3, "data_ms": waits.mean() * 1e3, "seconds": (waits + computes).tolist()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
