"""The feed in PyTorch: batches of tensors, a dataset for DataLoader and Lightning, and the rank of this process.

for batch in feed.torch(device="cuda"): ...           # from a penstock.Feed
loader = DataLoader(FeedDataset(DIR), batch_size=None)  # for code that wants a DataLoader
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple, TypedDict

import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.dlpack import from_dlpack

from . import settings as _settings
from ._penstock import Batch as _Arrays
from ._penstock import Core, DeviceArray, Settings
from .errors import Error
from .feed import Feed, View

__all__ = ["Batch", "FeedDataset", "Ranks", "ranks", "view"]


@dataclass(eq=False)
class Batch:
    """penstock.Batch with tensors. On the CPU they share the feed's memory, which is used again when the batch and the
    last of them are gone. They may be written to with torch's operations; what writes behind torch's back (`.numpy()`,
    `.data`, a pointer) needs a clone()."""

    mel: Tensor  #: [rows, frames, bins] float32 (or [rows, bins, frames], see `mel_layout`)
    mel_lengths: Tensor  #: [rows] int32
    tokens: Tensor  #: [rows, tokens] int32
    token_lengths: Tensor  #: [rows] int32
    speakers: Tensor  #: [rows] int32
    utterances: Tensor  #: [rows] int64
    replaced: Tensor  #: [rows] bool
    extras: dict[str, Tensor]
    ids: list[str]
    epoch: int
    step: int
    shape: tuple[int, int, int]  #: rows, tokens, frames

    def __getattr__(self, name: str) -> Any:
        """On the CPU a tensor is made when it is asked for: a training step needs few of them."""
        arrays = self.__dict__.get("_arrays")
        if arrays is None or name not in _FIELDS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        value = self.__dict__[name] = _FIELDS[name](arrays)
        return value

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _FIELDS}

    __getstate__ = _values

    def to(self, device: str | int | torch.device, non_blocking: bool = False) -> Batch:
        """A copy on this device, as Tensor.to."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        """A copy in pinned memory: what DataLoader(pin_memory=True) calls."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        values = self._values()
        changed = {name: change(value) for name, value in values.items() if isinstance(value, Tensor)}
        extras = {name: change(value) for name, value in self.extras.items()}
        return Batch(**{**values, **changed, "extras": extras})


def _watched(arrays: _Arrays, tensor: Tensor) -> Tensor:
    """The tensor; the feed learns whether it was written to, since its padding has to be cleared then."""
    if tensor.is_inference():  # writes are not counted
        arrays.writable()
    else:
        arrays.watch(_counter(tensor))
    return tensor


def _counter(tensor: Tensor) -> Tensor:
    """Shares the tensor's count of writes (`_version`), and not its memory."""
    counter = tensor.detach()
    counter.data = _NOTHING
    return counter


_NOTHING = torch.empty(0)

#: How each field comes from a batch in ordinary memory.
_FIELDS: dict[str, Callable[[_Arrays], Any]] = {
    "mel": lambda arrays: _watched(arrays, from_dlpack(arrays.lend_mel())),
    "mel_lengths": lambda arrays: from_dlpack(arrays.lend_mel_lengths()),
    "tokens": lambda arrays: _watched(arrays, from_dlpack(arrays.lend_tokens())),
    "token_lengths": lambda arrays: from_dlpack(arrays.lend_token_lengths()),
    "speakers": lambda arrays: from_dlpack(arrays.lend_speakers()),
    "utterances": lambda arrays: from_dlpack(arrays.lend_utterances()),
    "replaced": lambda arrays: from_dlpack(arrays.lend_replaced()),
    "extras": lambda arrays: {
        name: _watched(arrays, from_dlpack(capsule)) for name, capsule in arrays.lend_extras().items()
    },
    "ids": lambda arrays: arrays.ids,
    "epoch": lambda arrays: arrays.epoch,
    "step": lambda arrays: arrays.step,
    "shape": lambda arrays: arrays.shape,
}


def _on_host(arrays: _Arrays) -> Batch:
    batch = Batch.__new__(Batch)
    batch.__dict__["_arrays"] = arrays
    return batch


def _on_device(arrays: _Arrays) -> Batch:
    """Tells the batch torch's current stream, which then waits for the copy; no host does."""
    values = {name: getattr(arrays, name) for name in _FIELDS}
    tensors = {name: from_dlpack(value) for name, value in values.items() if isinstance(value, DeviceArray)}
    extras = {name: from_dlpack(array) for name, array in arrays.extras.items()}
    return Batch(**{**values, **tensors, "extras": extras})


def view(feed: Feed, device: Any = "cpu") -> View[Batch]:
    """What Feed.torch() returns: the feed's batches as tensors on `device` (cpu, cuda, cuda:1, a torch.device).

    On a CUDA device tensors belong to the stream that was current when their batch was taken. Work on another
    stream has to wait for that one, and that one for it, before the tensors go: record_stream() is not enough, since
    the memory is not torch's.
    """
    name = _feed_device(torch.device(device))
    return View(feed, _on_host if name == "cpu" else _on_device, name)


def _feed_device(device: torch.device) -> str:
    """Its name in the feed's settings."""
    if device.type == "cpu":
        return "cpu"
    if device.type != "cuda":
        raise Error(f"device must be cpu or cuda, but is {device}: take batches on the cpu, and batch.to('{device}')")
    if not torch.cuda.is_available():
        raise Error(f"device must be cpu here, but is {device}: torch {torch.__version__} finds no CUDA device")
    number = torch.cuda.current_device() if device.index is None else device.index
    if number >= torch.cuda.device_count():
        raise Error(f"device must be below cuda:{torch.cuda.device_count()}, but is {device}")
    return f"cuda:{number}" if number else "cuda"


class Ranks(TypedDict):
    """Arguments of a feed that takes its share of every global batch."""

    rank: int
    world: int


def ranks(group: torch.distributed.ProcessGroup | None = None) -> Ranks:
    """`rank` and `world` of this process, as arguments: Feed(DIR, **ranks()).

    From torch.distributed where it is initialised (of `group`, for instance that of data parallelism), else from
    torchrun's RANK and WORLD_SIZE, else 0 of 1.
    """
    if _is_distributed():
        return {"rank": torch.distributed.get_rank(group), "world": torch.distributed.get_world_size(group)}
    if group is not None:
        raise Error("ranks(group) needs an initialised torch.distributed")
    return {"rank": int(os.environ.get("RANK", "0")), "world": int(os.environ.get("WORLD_SIZE", "1"))}


def _is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Facts(NamedTuple):
    """What the order of a dataset's batches depends on, and how many an epoch has."""

    ranks: dict[str, str]
    steps: int
    seed: int
    shapes: list[tuple[int, int, int]]


class _Share:
    """A feed of this process with the batches first, first + every, ... of each epoch."""

    def __init__(self, settings: Settings, facts: _Facts, first: int, every: int) -> None:
        self.what = os.getpid(), facts, first, every
        self._core = Core(settings, first=first, every=every)
        self._facts, self._first, self._every = facts, first, every
        self._next: tuple[int, int] | None = None  # epoch and step of the batch that the feed prepares

    def batches(self, epoch: int, step: int) -> Iterator[Batch]:
        """Those of this epoch from `step` on. At their end the feed fills those of the next one."""
        step += (self._first - step) % self._every
        if step < self._facts.steps and self._next != (epoch, step):
            seed, shapes = self._facts.seed, self._facts.shapes
            self._core.restore({"seed": seed, "epoch": epoch, "step": step, "shapes": shapes})
            self._next = epoch, step
        while step < self._facts.steps:
            batch = _on_host(self._core.next())
            step += self._every
            self._next = (epoch, step) if step < self._facts.steps else (epoch + 1, self._first)
            yield batch


class _Place:
    """Where the next iteration begins, in memory that the processes of a DataLoader share.

    The main process sets an epoch and a step. Behind them each worker has a cell, which it alone writes: the epoch
    after the one that it began last, and a mark that is the same in all workers of an iteration. By the mark workers
    agree on an iteration's epoch, in whatever order they start and even if some never did: the first to start takes the
    one after all that were begun.
    """

    _EPOCH_BITS = 22

    def __init__(self) -> None:
        self.__setstate__({"_cells": torch.zeros(2 + 1024, dtype=torch.int64)})

    def __setstate__(self, state: dict[str, Tensor]) -> None:
        self._cells = state["_cells"]
        self._cells.share_memory_()  # type: ignore[no-untyped-call]  # changes nothing when it came to a worker

    def set(self, epoch: int, step: int) -> None:
        self._cells.zero_()
        self._cells[0], self._cells[1] = epoch, step

    def next(self) -> tuple[int, int]:
        return self._behind(self._cells.tolist())

    def _behind(self, cells: list[int]) -> tuple[int, int]:
        epoch, step, *workers = cells
        after = max(map(self._after, workers))
        return (after, 0) if after else (epoch, step)

    def in_workers(self) -> bool:
        """Workers have begun an iteration since the main process has set a place."""
        return bool(self._cells[2:].any())

    def join(self, worker: int, mark: int) -> tuple[int, int]:
        """Where the iteration begins that this worker finds itself in. Looks once: others may begin meanwhile."""
        epoch, step, *workers = cells = self._cells.tolist()
        last = self._after(workers[worker])
        same = [self._after(cell) for cell in workers if cell >> self._EPOCH_BITS == mark]
        agreed = max((after for after in same if after > last), default=0)
        if not agreed:
            return self._behind(cells)
        return agreed - 1, step if agreed - 1 == epoch else 0

    def begun(self, worker: int, mark: int, epoch: int) -> None:
        self._cells[2 + worker] = mark << self._EPOCH_BITS | (epoch + 1)

    def _after(self, cell: int) -> int:
        return cell & ((1 << self._EPOCH_BITS) - 1)


class FeedDataset(IterableDataset[Batch]):
    """A feed for code that wants a DataLoader: `DataLoader(FeedDataset(DIR, ...), batch_size=None)`.

    Arguments are penstock.Feed's. Rank and world are torch.distributed's, unless given (see ranks()). Batches are
    on the CPU.

    The feed opens in the process that iterates. Its threads are native, so `num_workers=0` is the DataLoader's best
    setting; with W workers the order is the same bit for bit, since worker w takes the batches w, w + W, ....

    Every iteration is an epoch; the next one takes the next, also when the last was left early. set_epoch() and
    load_state_dict() say otherwise, and reach workers that are already running (`persistent_workers`) too.
    """

    def __init__(self, dataset_path: Any = None, *, config: Any = None, **keys: Any) -> None:
        self._values: dict[str, str] = _settings.load(dataset_path, config, keys).values()
        if self._values.get("device", "cpu") != "cpu":
            raise Error("device must be cpu in a FeedDataset: Feed(...).torch(device) puts batches on a device")
        self._ranks_given = any(keys.get(name) is not None or name in self._values for name in ("rank", "world"))
        self._inherited: dict[str, int] | None = None  # the ranks of the process that started this worker
        self._place = _Place()
        self._at = 0, 0  # epoch and step behind the batch that was delivered last in this process
        self._start = 0  # the step with which this iteration began
        self._resumed = False  # a worker goes on from there
        self._iterations = 0  # of this process
        self._frozen: dict[str, Any] | None = None  # the state that was loaded: its seed and shapes
        self._known: _Facts | None = None
        self._share: _Share | None = None

    def __iter__(self) -> Iterator[Batch]:
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        if info is None:
            epoch, step = self._start_of(*self._place.next())
        else:
            epoch, step = self._begin_in_worker(info.id, info.seed - info.id)
        self._at = epoch, step
        first = (self._start + worker) % workers
        return self._batches(epoch, step, first, workers)

    def _start_of(self, epoch: int, step: int) -> tuple[int, int]:
        """There, or at the start of the next epoch when this one has no batch left."""
        if step and step >= len(self):
            epoch, step = epoch + 1, 0
        self._start = step
        return epoch, step

    def _begin_in_worker(self, worker: int, base_seed: int) -> tuple[int, int]:
        self._iterations += 1
        mark = hash((base_seed, self._iterations)) & ((1 << 40) - 1)
        epoch, step = self._at if self._resumed else self._start_of(*self._place.join(worker, mark))
        self._resumed = False
        self._place.begun(worker, mark, epoch)
        return epoch, step

    def _batches(self, epoch: int, step: int, first: int, every: int) -> Iterator[Batch]:
        if get_worker_info() is None:
            self._place.set(epoch + 1, 0)
        if first < len(self):  # there may be more workers than batches
            for batch in self._open(first, every).batches(epoch, step):
                self._at = epoch, batch.step + 1
                yield batch
        self._at = epoch, len(self)

    def __len__(self) -> int:
        """Batches of an epoch."""
        return self._facts().steps

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch: from its first batch, or from where load_state_dict() has put it."""
        if self._place.in_workers() or self._place.next()[0] != epoch:
            self._place.set(epoch, 0)
            self._at = epoch, 0

    def state_dict(self, after: Batch | None = None) -> dict[str, Any]:
        """Where the dataset stands: behind the batch `after`.

        Without it, behind the batch that left the dataset last. That is exact where nothing fetches ahead: in a
        DataLoader without workers, or inside a worker (as torchdata's StatefulDataLoader uses it). Only the
        training loop knows what a DataLoader with workers has delivered: an Error asks for the batch.
        """
        facts = self._facts()
        epoch, step = self._at if after is None else (after.epoch, after.step + 1)
        state = {"seed": facts.seed, "epoch": epoch, "step": step, "shapes": facts.shapes}
        if get_worker_info() is not None:
            return {**state, "start": self._start}
        if after is None and self._place.in_workers():
            raise Error("workers fetch ahead of the loop: give the batch after which to go on, state_dict(batch)")
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration goes on there. Before the DataLoader's first one, when seed or shapes are others."""
        self._known, self._frozen = self._look(state), state  # an Error, when it is no state
        self._at = epoch, step = state["epoch"], state["step"]
        if get_worker_info() is None:
            self._place.set(epoch, step)
        else:
            self._start, self._resumed = state.get("start", step), True

    # ---- its feed

    def _facts(self) -> _Facts:
        if self._known is None or self._known.ranks != self._ranks():
            self._known = self._look(self._frozen)
        return self._known

    def _look(self, state: dict[str, Any] | None) -> _Facts:
        core = Core(self._settings(num_workers="1", prefetch_buffer_size="2"))
        if state is not None:
            core.restore(state)
        now = core.state()
        return _Facts(self._ranks(), core.steps_per_epoch, now["seed"], now["shapes"])

    def _open(self, first: int, every: int) -> _Share:
        facts, share = self._facts(), self._share
        if share is None or share.what != (os.getpid(), facts, first, every):
            self._share = None  # its threads end before others start
            threads = self._values.get("num_workers", "auto" if every == 1 else str(max(1, _cpus() // every)))
            self._share = share = _Share(self._settings(num_workers=threads), facts, first, every)
        return share

    def _settings(self, **changed: str) -> Settings:
        return Settings.load("", {**self._values, **self._ranks(), **changed})

    def _ranks(self) -> dict[str, str]:
        if self._ranks_given:
            return {}
        here = ranks() if _is_distributed() or self._inherited is None else self._inherited
        return {name: str(value) for name, value in here.items()}

    def __getstate__(self) -> dict[str, Any]:
        inherited = ranks() if _is_distributed() else self._inherited
        return {**self.__dict__, "_share": None, "_inherited": inherited}
