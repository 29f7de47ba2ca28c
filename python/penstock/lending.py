"""A batch's arrays by name, lent to frameworks that may keep more of them than the feed has memory for."""

from __future__ import annotations

from typing import Any, Dict, List
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import numpy.typing as npt

from ._penstock import Batch
from .feed import Feed

#: What every batch has; extras come behind it.
ARRAYS = ("mel", "mel_lengths", "tokens", "token_lengths", "speakers", "utterances", "replaced")

ALIGNMENT = 64  #: what frameworks want of memory that they take over as it is

Arrays = Dict[str, npt.NDArray[Any]]


class Lender:
    """Lends a feed's arrays as they are. While the consumer keeps so many batches that the feed would have no
    memory for the next one (a prefetch, work in flight, a list), it gets copies."""

    def __init__(self, prefetch_buffer_size: int) -> None:
        self._most = prefetch_buffer_size
        self._lent: List[WeakValueDictionary[str, npt.NDArray[Any]]] = []

    def __call__(self, batch: Batch) -> Arrays:
        arrays: Arrays = {**{name: getattr(batch, name) for name in ARRAYS}, **batch.extras}
        self._lent = [kept for kept in self._lent if len(kept)]
        if len(self._lent) >= self._most:
            return {name: _copy(array) for name, array in arrays.items()}
        self._lent.append(WeakValueDictionary(arrays))
        return arrays


_lenders: WeakKeyDictionary[Feed, Lender] = WeakKeyDictionary()


def lender(feed: Feed) -> Lender:
    """The feed's one: all its views lend from the same memory."""
    if feed not in _lenders:
        _lenders[feed] = Lender(int(feed._settings.get("prefetch_buffer_size")))
    return _lenders[feed]


def _copy(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
