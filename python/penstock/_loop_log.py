"""The lines that a Monitor adds to a run's log: RUN/log.jsonl, one JSON object a line."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
import warnings
from typing import Any, Mapping

from .errors import Error
from .feed import Feed


class Log:
    """Appends lines, each with one write, so that who reads sees whole ones. One writer at a time."""

    def __init__(self, run: str) -> None:
        self.path = os.path.join(run, "log.jsonl")
        self._process = os.getpid()
        self._file = -1
        try:
            os.makedirs(run, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise Error(f"{self.path}: cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise Error(
                f"{run}: another Monitor writes this run: close() it first; of several processes let one watch, "
                "or give each a folder of its own"
            ) from None
        except OSError:  # a file system without locks
            pass
        self.empty = os.fstat(self._file).st_size == 0
        if not self.empty and os.pread(self._file, 1, os.fstat(self._file).st_size - 1) != b"\n":
            os.write(self._file, b"\n")  # a writer was killed within its last line

    def add(self, kind: str, values: Mapping[str, Any], t: float | None = None) -> None:
        """`t`: when it was, seconds since the epoch. Nothing in a forked child, or when the log is closed."""
        if self._file < 0 or os.getpid() != self._process:
            return
        line = {"t": round(time.time() if t is None else t, 6), "kind": kind, **values}
        try:
            os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")
        except OSError as error:  # training goes on without its log
            warnings.warn(f"{self.path}: cannot be written any more: {error.strerror}", RuntimeWarning, stacklevel=2)
            self.close()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class FeedLines:
    """What a Feed did, every two seconds."""

    def __init__(self, log: Log, feed: Feed) -> None:
        self._log, self._feed = log, feed
        self._before, self._at = feed.stats(), time.perf_counter()

    def add(self, *, last: bool = False) -> None:
        now = time.perf_counter()
        if last or now - self._at >= 2:
            with contextlib.suppress(Error):  # it was closed within the loop
                self._add(now, last)

    def _add(self, now: float, last: bool) -> None:
        stats, before = self._feed.stats(), self._before
        samples = stats["samples"] - before["samples"]
        stages = {
            name: round((seconds - before["stage_seconds"][name]) / max(1, samples) * 1e6, 2)
            for name, seconds in stats["stage_seconds"].items()
        }
        cache = {name: count - before["cache"][name] for name, count in stats["cache"].items()}
        skipped = self._feed.skipped
        line = {
            "samples": samples,
            "samples_per_second": round(samples / (now - self._at), 2),
            "stages": stages,
            **{name: stats[name] for name in ("workers", "depth", "ring_level")},
            **cache,
            "skipped": len(skipped),
        }
        if last:
            line["skipped_samples"] = [{key: one[key] for key in ("id", "reason", "times")} for one in skipped]
        self._log.add("feed", line)
        self._before, self._at = stats, now
