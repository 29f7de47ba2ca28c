"""Speech datasets as full batches of a few fixed shapes, filled by native threads before they are asked for.

import penstock
feed = penstock.Feed("data/LJSpeech-1.1", batch_size=16, shapes=4, seed=7)
for batch in feed:
    train(batch.mel, batch.mel_lengths, batch.tokens, batch.token_lengths)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import cache
from ._penstock import Batch, DeviceArray, Symbols
from ._penstock import version as __version__
from .dataset import info, synth
from .errors import Error, SampleError
from .features import mel, tokens
from .feed import Feed

if TYPE_CHECKING:
    from ._guard import RetraceError, guard
    from ._warming import warm_up
    from .monitor import Monitor

__all__ = [
    "Batch",
    "DeviceArray",
    "Error",
    "Feed",
    "Monitor",
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


def __getattr__(name: str) -> Any:
    """What not every program uses is imported by those that do."""
    if name in ("guard", "RetraceError"):
        from . import _guard

        return getattr(_guard, name)
    if name == "warm_up":
        from ._warming import warm_up

        return warm_up
    if name == "Monitor":
        from .monitor import Monitor

        return Monitor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
