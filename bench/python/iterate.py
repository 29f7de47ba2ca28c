"""The feed as Python sees it: `iterate.py numpy|torch|jax|tf DATA [live|cached]`, with the settings of `penstock bench` in prove.py.

Measured by the loop that measures the peers; one JSON line is the result, with the keys of `penstock bench --json` and
`thread_us_per_batch`, the CPU time of the thread that iterates."""

import itertools
import json
import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "peers"))
import loop  # isort: skip, before NumPy: it sets the thread counts

import numpy as np

import penstock

VIEWS = {
    "numpy": lambda feed: feed,
    "torch": lambda feed: feed.torch(),
    "jax": lambda feed: feed.jax(),
    "tf": lambda feed: feed.tf(),
}
ARRAYS = ("mel", "tokens", "mel_lengths", "token_lengths")


def arrays(batch):
    """What the loop touches. NumPy sees the memory of every framework's arrays, once they are there."""
    values = (batch[name] if isinstance(batch, dict) else getattr(batch, name) for name in ARRAYS)
    return tuple(np.asarray(value) for value in values)


def main(framework, data, mode="live"):
    feed = penstock.Feed(
        data,
        split="all",
        batch_size=loop.BATCH,
        pad_to_fixed_length=True,
        max_mel_frames=880,
        max_text_length=256,
        preprocessing_mode={"live": "runtime", "cached": "precompute"}[mode],
    )
    view = VIEWS[framework](feed)
    epochs = [view.repeat()] if framework == "tf" else itertools.repeat(view)
    batches = (arrays(batch) for batch in itertools.chain.from_iterable(epochs))
    print(json.dumps({"framework": framework, **loop.measure(batches)}), flush=True)
    os._exit(0)  # some frameworks' threads take their time


if __name__ == "__main__":
    main(*sys.argv[1:])
