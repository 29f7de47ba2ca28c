"""Watches a training loop: how long each step waited for data and how long it computed, into a run's log.

    mon = penstock.Monitor(run="runs/a")
    for batch in mon.wrap(loader):
        train(batch)
    print(mon.report())

`penstock diagnose --run runs/a`, `penstock monitor` and `penstock report` read the same log. A thread of its own adds
what GPUs, CPUs, memory and disks did, once a second.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ContextManager, Deque, Dict, Generic, List, NamedTuple, Optional, Tuple, TypeVar

from . import _cuda_clock, _penstock
from ._loop_log import FeedLines, Log
from ._monitor_report import Report, Section, meaning
from .errors import Error
from .feed import Feed

if TYPE_CHECKING:
    from typing_extensions import Self

    from .keys import Path

T = TypeVar("T")

# What the loop's thread does. A wrapped loop's body is computing, unless compute() says what is.
_OUTSIDE, _DATA, _COMPUTE, _BODY, _WHOLE, _APART = "outside", "data", "compute", "body", "whole", "apart"
_WORK = (_COMPUTE, _BODY, _WHOLE)  #: _WHOLE: fetching and computing in one call that cannot be divided
_WRITE_EVERY = 200_000_000  #: ns; lines of short steps are written together, in a fraction of the time
_EVENTS = ("checkpoint", "validation")  #: what time() counts for neither data nor computing


def _ms(nanoseconds: float) -> float:
    return round(nanoseconds / 1e6, 4)


class Monitor:
    """The times of a training loop. What the thread of the loop does is measured; time() is for any thread.

    run: the run's folder; a run that is there already goes on after its last step

    Where torch uses CUDA, computing is timed by events on the current stream, which nothing waits for, and waiting for
    data is what the stream stood idle meanwhile. Otherwise the times are the host's; report() says what that means.

    close() ends the run, as does the end of a `with` block or of the process; after an exception the log says so.
    """

    def __init__(self, run: Path) -> None:
        self._closed = True
        self.run = os.fspath(run)
        self._log = Log(self.run)
        self._step, self._epoch = (0, -1) if self._log.empty else _penstock.last_step(self.run)
        self._epoch += 1
        self._first = self._step  # before this process
        self._epoch_first, self._epoch_start = self._step, time.perf_counter()
        self._process, self._thread = os.getpid(), 0
        self._doing, self._since = _OUTSIDE, time.perf_counter_ns()
        self._spent = self._nothing()
        self._waited = 0  # ns for data since the last work of this step
        self._ended = 0.0  # when the step's last work was over, seconds since the epoch
        self._apart: Optional[Tuple[str, str, int]] = None  # name, what was done before, since when
        self._looping = False
        self._batch: Dict[str, Any] = {}
        self._cuda: Optional[_cuda_clock.CudaClock] = None
        self._unwritten: Deque[_Step] = deque()
        self._written = self._since  # ns
        self._sections: Dict[Tuple[str, str], List[int]] = {}  # (name, where): [times, ns]
        self._in_step: Dict[str, int] = {}  # ns by name
        self._lock = threading.Lock()  # of the two
        self._divided = True
        self._log.add("event", {"event": "resume" if self._step else "start", "step": self._step})
        self._samples = _penstock.SystemSamples(self.run)
        self._closed = False
        self._at_exit = functools.partial(_close_at_exit, weakref.ref(self))
        atexit.register(self._at_exit)

    # ---- what a loop says

    def wrap(self, loader: Iterable[T]) -> Wrapped[T]:
        """The loader, watched: what it takes to give a batch is waiting for data, the loop's body is computing. Every
        pass is an epoch. A wrapped loop within another one belongs to the outer one's steps."""
        return Wrapped(self, loader)

    def data(self) -> ContextManager[None]:
        """In this block the loop waits for data. Outside of wrap() the first one after a compute() begins a step."""
        return self._block(_DATA)

    def compute(self) -> ContextManager[None]:
        """In this block the loop computes; in a wrapped loop the rest of the body then is neither."""
        return self._block(_COMPUTE)

    @contextlib.contextmanager
    def time(self, name: str) -> Iterator[None]:
        """A part of a step, data or computing, with a name. "checkpoint" and "validation" count for neither: they are
        events of the run."""
        mine = self._thread in (0, threading.get_ident())
        apart = name in _EVENTS and mine and self._apart is None
        if apart:
            self._begin_apart(name)
        where = {_DATA: "data", _COMPUTE: "computing", _BODY: "computing"}.get(self._doing, "") if mine else ""
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            took = time.perf_counter_ns() - start
            with self._lock:
                section = self._sections.setdefault((name, where), [0, 0])
                section[0] += 1
                section[1] += took
                self._in_step[name] = self._in_step.get(name, 0) + took
            if apart and self._apart is not None:  # not closed meanwhile
                self._end_apart()

    def end_epoch(self) -> None:
        """Steps that follow are of the next epoch. A wrapped loop does this itself."""
        self._go(_OUTSIDE)
        self._finish_step()
        self._end_epoch()

    def report(self) -> Report:
        """The run so far, judged: print() shows it as text, and it is a dict with what `penstock diagnose --run --json`
        says, `times` (what time() measured) and `meaning` (what the times are times of)."""
        if not self._closed and self._thread in (0, threading.get_ident()):
            if self._doing == _OUTSIDE:
                self._finish_step()
            self._write()
        with self._lock:
            sections = [Section(name, where, n, ns / 1e9) for (name, where), (n, ns) in self._sections.items()]
        said = meaning(self._cuda is not None, self._divided)
        return Report.of(
            self.run, json.loads(_penstock.diagnose_run(self.run)), sections, self._step - self._first, said
        )

    def keras(self) -> Any:
        """A callback for model.fit(callbacks=[..., mon.keras()]). With the backends tensorflow and jax a batch is
        fetched within the training function: its times are then of the whole batch, and `meaning` says so."""
        from ._monitor_callbacks import keras_callback

        return keras_callback(self)

    def lightning(self) -> Any:
        """A callback for Trainer(callbacks=[mon.lightning()]). Between two batches the trainer waits for data; what
        other callbacks do there is in it, validation and checkpoints are not."""
        from ._monitor_callbacks import lightning_callback

        return lightning_callback(self)

    # ---- its life

    def close(self, error: BaseException | None = None) -> None:
        """Ends the run. `error`: why, if it was not meant to."""
        if self._closed or os.getpid() != self._process:
            return
        self._closed = True
        atexit.unregister(self._at_exit)
        self._go(_OUTSIDE)
        self._finish_step()
        if error is not None:  # the device may be what has failed: the host's times will do
            self._unwritten = deque(step._replace(intervals=[]) for step in self._unwritten)
        self._write(wait=True)
        event: Dict[str, Any] = {"event": "end", "step": self._step}
        if error is not None:
            event.update(event="crash", error=f"{type(error).__name__}: {error}")
        self._log.add("event", event)
        self._samples.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(error)

    def __del__(self) -> None:
        self.close()

    # ---- where the time goes

    @staticmethod
    def _nothing() -> Dict[str, int]:
        return dict.fromkeys((_OUTSIDE, _DATA, _COMPUTE, _BODY, _WHOLE, _APART), 0)

    def _is_here(self) -> bool:
        """In the thread of the loop: the first that says something."""
        if self._closed:
            raise Error(f"{self.run}: this Monitor has been closed: open another, and the run goes on")
        self._thread = self._thread or threading.get_ident()
        return self._thread == threading.get_ident()

    @contextlib.contextmanager
    def _block(self, doing: str) -> Iterator[None]:
        if not self._is_here() or self._apart is not None:
            yield
            return
        before = self._doing
        if before == _OUTSIDE:
            self._go(doing)
        else:
            self._turn(doing)
        try:
            yield
        finally:
            self._turn(before)

    def _go(self, doing: str) -> None:
        """The loop does something else from now on, which may begin a step."""
        if self._apart is not None:
            self._end_apart()
        self._turn(_OUTSIDE)
        worked = self._spent[_COMPUTE] or self._spent[_WHOLE]
        if worked and (doing == _DATA or (doing in _WORK and not self._spent[_DATA])):
            self._finish_step()
        self._turn(doing)

    def _turn(self, doing: str) -> None:
        now, was = time.perf_counter_ns(), self._doing
        took = now - self._since
        self._spent[was] += took
        self._doing, self._since = doing, now
        if was == _DATA:
            self._waited += took
        if was in _WORK and doing not in _WORK:
            self._ended = time.time()
            if self._cuda is not None:
                self._cuda.stop()
        elif doing in _WORK and was not in _WORK:
            self._cuda = self._cuda or _cuda_clock.of_this_process()
            if self._cuda is not None:
                self._cuda.start(self._waited / 1e6)
            self._waited = 0

    def _begin_apart(self, name: str) -> None:
        self._apart = name, self._doing, time.perf_counter_ns()
        self._turn(_APART)

    def _end_apart(self) -> None:
        assert self._apart is not None
        (name, before, since), self._apart = self._apart, None
        self._turn(before)
        step = self._step + (before in _WORK or any(self._spent[work] for work in _WORK))
        seconds = round((self._since - since) / 1e9, 6)
        self._event({"event": name, "step": step, "epoch": self._epoch, "seconds": seconds})

    # ---- lines

    def _finish_step(self) -> None:
        spent = self._spent
        if not (spent[_COMPUTE] or spent[_BODY] or spent[_WHOLE]):
            return
        self._spent = self._nothing()
        self._step += 1
        in_step: Dict[str, int] = {}
        if self._in_step:
            with self._lock:
                in_step, self._in_step = self._in_step, {}
        intervals = self._cuda.take() if self._cuda is not None else []
        self._unwritten.append(_Step(self._step, self._epoch, self._ended, spent, self._batch, in_step, intervals))
        if self._since - self._written > _WRITE_EVERY:
            self._write()

    def _write(self, *, wait: bool = False) -> None:
        """Steps whose end the device has reached; `wait`: all of them."""
        self._written = self._since
        while self._unwritten:
            step = self._unwritten[0]
            if step.intervals and wait:
                step.intervals[-1].end.synchronize()  # type: ignore[union-attr]
            elif not _cuda_clock.is_over(step.intervals):
                return
            self._unwritten.popleft()
            self._log.add("step", _line(step), step.ended)

    def _event(self, event: Dict[str, Any]) -> None:
        """Behind the lines of the steps before it."""
        self._write()
        self._log.add("event", event)

    def _end_epoch(self) -> None:
        self._spent, self._waited = self._nothing(), 0
        steps, now = self._step - self._epoch_first, time.perf_counter()
        if steps:
            seconds = round(now - self._epoch_start, 6)
            event = {"event": "epoch", "step": self._step, "epoch": self._epoch, "steps": steps, "seconds": seconds}
            self._event(event)
            self._epoch += 1
        self._epoch_first, self._epoch_start = self._step, now


class _Step(NamedTuple):
    step: int
    epoch: int
    ended: float  #: its last work was over, seconds since the epoch
    spent: Dict[str, int]  #: ns
    batch: Dict[str, Any]
    times: Dict[str, int]  #: ns by name
    intervals: List[_cuda_clock.Interval]


def _line(step: _Step) -> Dict[str, Any]:
    line: Dict[str, Any] = {"step": step.step, "epoch": step.epoch}
    spent = step.spent
    if spent[_WHOLE]:
        line["data_ms"] = _ms(spent[_WHOLE])
    else:
        compute, data = (spent[_COMPUTE] or spent[_BODY]) / 1e6, spent[_DATA] / 1e6
        if step.intervals:
            with contextlib.suppress(RuntimeError, ValueError):  # of two devices
                compute, data = _cuda_clock.times(step.intervals)
        au = compute / (compute + data) if compute + data else 0.0
        line.update(step_ms=round(compute, 4), data_ms=round(data, 4), au=round(au, 4))
    line.update(step.batch)
    if step.times:
        line["times"] = {name: _ms(took) for name, took in step.times.items()}
    return line


def _close_at_exit(monitor: weakref.ref[Monitor]) -> None:
    watched = monitor()
    if watched is not None:
        interactive = hasattr(sys, "ps1")
        watched.close(None if interactive else getattr(sys, "last_exc", getattr(sys, "last_value", None)))


class Wrapped(Generic[T]):
    """A loader that a Monitor watches: iterates as it does, and has its length and attributes."""

    def __init__(self, monitor: Monitor, loader: Iterable[T]) -> None:
        self._monitor, self._loader = monitor, loader

    def __iter__(self) -> Iterator[T]:
        monitor = self._monitor
        if not monitor._is_here() or monitor._looping or monitor._doing != _OUTSIDE:
            return self._within()
        return self._steps()

    def _within(self) -> Iterator[T]:
        """A part of somebody's step."""
        monitor = self._monitor
        with monitor._block(_DATA):
            batches = iter(self._loader)
        while True:
            with monitor._block(_DATA):
                try:
                    batch = next(batches)
                except StopIteration:
                    return
            yield batch

    def _steps(self) -> Iterator[T]:
        monitor = self._monitor
        feed = self._loader if isinstance(self._loader, Feed) else getattr(self._loader, "feed", None)
        lines = FeedLines(monitor._log, feed) if isinstance(feed, Feed) else None
        monitor._finish_step()
        monitor._looping = True
        monitor._turn(_DATA)
        try:
            for batch in self._loader:
                monitor._batch = _about(batch)
                monitor._turn(_BODY)
                yield batch
                monitor._turn(_OUTSIDE)  # our own time is nobody's
                monitor._finish_step()
                if lines is not None:
                    lines.add()
                monitor._turn(_DATA)
        finally:
            monitor._looping = False
            monitor._turn(_OUTSIDE)
            monitor._finish_step()  # of a loop that was left
            monitor._batch = {}
            if lines is not None:
                lines.add(last=True)
            monitor._end_epoch()

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":
            raise AttributeError(name)
        return getattr(self._loader, name)


def _about(batch: Any) -> Dict[str, Any]:
    """What a log's line says of a penstock batch. Nothing of a device's memory is asked for."""
    if not type(batch).__module__.startswith("penstock"):
        return {}
    rows, tokens, frames = batch.shape
    about: Dict[str, Any] = {"shape": [rows, tokens, frames]}
    lengths = batch.mel_lengths
    if hasattr(lengths, "__array_interface__") or str(getattr(lengths, "device", "")) == "cpu":
        about["padding"] = round(1 - int(lengths.sum()) / (rows * frames), 4)
    return about
