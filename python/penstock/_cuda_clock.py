"""How long a CUDA device computed and stood idle, by events on its stream: nobody waits for them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, List, Optional, Tuple


@dataclass
class Interval:
    """Work of one step, from one wait for data to the next."""

    waited_ms: float  #: by the host, for data, before it
    before: Optional[Any]  #: the event at the end of the interval before
    start: Any
    end: Optional[Any] = None


class CudaClock:
    """Events of the stream that is current. `cuda` is torch.cuda."""

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._last: Any = None
        self.intervals: List[Interval] = []  #: of the step that goes on

    def _event(self) -> Any:
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def start(self, waited_ms: float) -> None:
        self.intervals.append(Interval(waited_ms, self._last, self._event()))

    def stop(self) -> None:
        if self.intervals:
            self._last = self.intervals[-1].end = self._event()

    def take(self) -> List[Interval]:
        """Of the step that ends here."""
        taken, self.intervals = [one for one in self.intervals if one.end is not None], []
        return taken


def of_this_process() -> CudaClock | None:
    """Where torch uses CUDA by now."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return CudaClock(cuda) if cuda is not None and cuda.is_initialized() else None


def is_over(intervals: List[Interval]) -> bool:
    """Whether the device has come to the end. Does not wait."""
    return all(one.end is None or one.end.query() for one in intervals)


def times(intervals: List[Interval]) -> Tuple[float, float]:
    """(computing, idle while the host waited for data), ms."""
    computing = idle = 0.0
    for one in intervals:
        computing += one.start.elapsed_time(one.end)
        gap = one.waited_ms if one.before is None else one.before.elapsed_time(one.start)
        idle += min(one.waited_ms, gap)
    return computing, idle
