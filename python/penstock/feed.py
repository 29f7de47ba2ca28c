"""The feed, and the views that hand its batches to a framework."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Callable, Generic, TypeVar

from . import _recent
from . import keys as _keys
from . import settings as _settings
from ._penstock import Batch, Core, Settings, Symbols
from .errors import Error

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from .dataset import Progress
    from .keys import Keys, Path

T = TypeVar("T")


class _Batches(Generic[T]):
    """The next `left` batches of a feed. Keeps none of them."""

    __slots__ = ("_convert", "_core", "_left")

    def __init__(self, core: Core, left: int, convert: Callable[[Batch], T] | None) -> None:
        self._core, self._left, self._convert = core, left, convert

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._left <= 0:
            raise StopIteration
        batch = self._core.next()
        _recent.add(batch)
        self._left -= 1
        return batch if self._convert is None else self._convert(batch)  # type: ignore[return-value]


class View(Generic[T]):
    """A feed whose batches are converted on their way: what `Feed.torch()` and `Feed.jax()` return."""

    def __init__(self, feed: Feed, convert: Callable[[Batch], T], device: str = "cpu") -> None:
        self.feed, self._convert, self._device = feed, convert, device

    def __iter__(self) -> Iterator[T]:
        return self.feed._to_the_end(self._convert, self._device)

    def __len__(self) -> int:
        return len(self.feed)

    def epoch(self, number: int) -> Iterator[T]:
        """All batches of this epoch, from its first."""
        return self.feed._whole(number, self._convert, self._device)


class Feed:
    __doc__ = f"""Full batches of a few fixed shapes from a dataset on disk, in an order that depends on the seed alone.

    A feed stands behind the batch that it delivered last. Iterating goes on from there to the end of the epoch;
    the next loop then takes the next epoch. Any thread may call it; they take turns.

    Every key of the configuration is an argument:

    dataset_path: the dataset's folder (metadata.csv, wavs/)
    config: a YAML file with keys, over which arguments win
    progress: called as progress(what, done, total) while an index or a cache is built
{_keys.HELP}
    """

    def __init__(
        self,
        dataset_path: Path | None = None,
        *,
        config: Path | None = None,
        progress: Progress | None = None,
        **keys: Unpack[Keys],
    ) -> None:
        self._open(_settings.load(dataset_path, config, keys), progress)

    def _open(self, settings: Settings, progress: Progress | None = None) -> None:
        self._settings = settings
        self._running: Core | None = Core(settings, progress=progress)

    @property
    def _core(self) -> Core:
        if self._running is None:
            raise Error("this feed has been closed")
        return self._running

    # ---- batches

    def __iter__(self) -> Iterator[Batch]:
        return self._to_the_end(None, None)

    def __len__(self) -> int:
        """Batches of an epoch."""
        return self._core.steps_per_epoch

    def epoch(self, number: int) -> Iterator[Batch]:
        """All batches of this epoch (from 0 on), from its first."""
        return self._whole(number, None, None)

    def next(self) -> Batch:
        """The next batch; an epoch follows the other."""
        batch = self._core.next()
        _recent.add(batch)
        return batch

    def _to_the_end(self, convert: Callable[[Batch], T] | None, device: str | None) -> Iterator[T]:
        self._move_to(device)
        return _Batches(self._core, self._left(), convert)

    def _whole(self, number: int, convert: Callable[[Batch], T] | None, device: str | None) -> Iterator[T]:
        self._move_to(device)
        self.restore({**self.state(), "epoch": number, "step": 0})
        return _Batches(self._core, len(self), convert)

    def _left(self) -> int:
        step: int = self.state()["step"]
        return len(self) if step >= len(self) else len(self) - step

    def _move_to(self, device: str | None) -> None:
        """Batches go to this device from here on; the feed is opened again where it stands."""
        if device is None or device == self._settings.get("device"):
            return
        state = self.state()
        self.close()
        self._open(Settings.load("", {**self._settings.values(), "device": device}))
        self.restore(state)

    # ---- batches for a framework

    def torch(self, device: Any = "cpu") -> Any:
        """Batches of torch tensors on `device`, prefetched; see penstock.torch."""
        from . import torch as adapter

        return adapter.view(self, device)

    def jax(self, device: Any = None, *, mesh: Any = None) -> Any:
        """Batches of committed JAX arrays on `device`, or with their rows sharded over `mesh`; see penstock.jax."""
        from . import jax as adapter

        return adapter.view(self, device, mesh)

    def tf(self) -> Any:
        """A tf.data.Dataset of dicts, from where the feed stands to the end of the epoch; see penstock.tf."""
        from . import tf as adapter

        return adapter.dataset(self)

    # ---- where it stands

    def state(self) -> dict[str, Any]:
        """Where the feed stands: seed, epoch, step (batches of this epoch that were delivered) and shapes.
        Plain numbers, so that JSON or a checkpoint can hold it."""
        return self._core.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on behind the batch after which `state` was taken, at once."""
        self._core.restore(state)

    def reset(self) -> None:
        """Back to the first batch."""
        self.restore({**self.state(), "epoch": 0, "step": 0})

    # ---- what it knows

    @property
    def shapes(self) -> list[tuple[int, int, int]]:
        """(rows, tokens, frames): every batch has one of these."""
        return self._core.shapes

    @property
    def settings(self) -> dict[str, str]:
        """Every key that is not at its default, as text: `Feed(**settings)` is the same feed."""
        return self._settings.values()

    @property
    def speakers(self) -> list[str]:
        """Names by the numbers of `batch.speakers`."""
        return self._core.speakers

    @property
    def symbols(self) -> Symbols:
        """Which id each character has."""
        return self._core.symbols

    @property
    def skipped(self) -> list[dict[str, Any]]:
        """Bad samples so far: id, path, reason, times."""
        return self._core.skipped

    @property
    def recomputed(self) -> list[dict[str, Any]]:
        """Samples of which a cached array was damaged and has been computed again."""
        return self._core.recomputed

    @property
    def notes(self) -> list[str]:
        """What a person should know of the dataset."""
        return self._core.notes

    def stats(self) -> dict[str, Any]:
        """Samples, waits, ring level, workers, seconds by stage, cache hits: since the feed was opened."""
        return self._core.stats()

    # ---- its life

    def close(self) -> None:
        """Ends its threads. Batches stay good."""
        self._running = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return _reopen, (self._settings.values(), self.state())

    def __repr__(self) -> str:
        return f"Feed({', '.join(f'{k}={v!r}' for k, v in self._settings.values().items())})"


def _reopen(values: dict[str, str], state: dict[str, Any]) -> Feed:
    feed = Feed(**values)  # type: ignore[arg-type]
    feed.restore(state)
    return feed
