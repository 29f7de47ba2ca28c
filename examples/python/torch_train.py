"""Trains a small model that guesses the next mel frame. Its step is compiled once per shape, and the checkpoint holds
where the feed stands, so that a run that was stopped goes on with the next batch.

    python examples/python/torch_train.py data/LJSpeech-1.1 --epochs 2
"""

from __future__ import annotations

import argparse
import os
import pathlib

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import penstock
import penstock.torch


class NextFrame(nn.Module):
    """Mel frames so far and the text to the next frame; forward() is the mean error over frames that are no padding."""

    def __init__(self, bins: int, symbols: int = 512, width: int = 64) -> None:
        super().__init__()
        self.symbols = nn.Embedding(symbols, width)
        self.frames = nn.Linear(bins, width)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, kernel_size=5) for _ in range(2))
        self.guess = nn.Linear(width, bins)

    def forward(self, mel: Tensor, mel_lengths: Tensor, tokens: Tensor, token_lengths: Tensor) -> Tensor:
        said = torch.arange(tokens.shape[1], device=mel.device) < token_lengths[:, None]
        text = (self.symbols(tokens) * said[:, :, None]).sum(1) / said.sum(1, keepdim=True).clamp(min=1)
        x = (self.frames(mel[:, :-1]) + text[:, None]).transpose(1, 2)
        for layer in self.layers:
            x = x + F.relu(layer(F.pad(x, (4, 0))))
        error = (self.guess(x.transpose(1, 2)) - mel[:, 1:]).abs().mean(2)
        heard = torch.arange(1, mel.shape[1], device=mel.device) < mel_lengths[:, None]
        loss: Tensor = (error * heard).sum() / heard.sum()
        return loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--checkpoint", type=pathlib.Path, default=pathlib.Path("checkpoint.pt"))
    parser.add_argument("--steps", type=int, help="stop after so many")
    parser.add_argument("--backend", default="inductor", help="of torch.compile")
    options = parser.parse_args()

    torch.manual_seed(0)
    feed = penstock.Feed(options.dataset, batch_size=options.batch_size, shapes=4, seed=7, **penstock.torch.ranks())
    model = NextFrame(bins=80).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss_of = torch.compile(model, dynamic=False, backend=options.backend)

    if options.checkpoint.exists():
        saved = torch.load(options.checkpoint, map_location=options.device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        feed.restore(saved["feed"])

    def save() -> None:
        fresh = options.checkpoint.with_suffix(".new")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "feed": feed.state()}, fresh)
        os.replace(fresh, options.checkpoint)

    log: list[tuple[str, torch.Tensor]] = []

    def show() -> None:  # several at a time: whoever asks the device for a number waits for it
        for line, loss in log:
            print(f"{line}  loss {loss.item():.6f}")
        log.clear()

    batches = feed.torch(options.device)
    at = feed.state()
    steps = 0
    for _ in range(at["epoch"] + (at["step"] == len(feed)), options.epochs):
        for batch in batches:  # from where the feed stands to the end of the epoch
            loss = loss_of(batch.mel, batch.mel_lengths, batch.tokens, batch.token_lengths)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log.append((f"epoch {batch.epoch}  step {batch.step:3}  shape {batch.shape}", loss.detach()))
            steps += 1
            if steps % 10 == 0:
                show()
            if steps == options.steps:
                break
        show()
        save()
        if steps == options.steps:
            return


if __name__ == "__main__":
    main()
