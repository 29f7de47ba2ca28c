"""Speech datasets as full batches of a few fixed shapes, filled by native threads before they are asked for.

import penstock
feed = penstock.Feed("data/LJSpeech-1.1", batch_size=16, shapes=4, seed=7)
for batch in feed:
    train(batch.mel, batch.mel_lengths, batch.tokens, batch.token_lengths)
"""

from . import cache
from ._penstock import Batch, DeviceArray, Symbols
from ._penstock import version as __version__
from ._warming import warm_up
from .dataset import info, synth
from .errors import Error, SampleError
from .features import mel, tokens
from .feed import Feed
from .guard import RetraceError, guard

__all__ = [
    "Batch",
    "DeviceArray",
    "Error",
    "Feed",
    "RetraceError",
    "SampleError",
    "Symbols",
    "__version__",
    "cache",
    "guard",
    "info",
    "mel",
    "synth",
    "tokens",
    "warm_up",
]
