"""Every shape of a feed through a compiled step, before the training begins."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Tuple

from ._guard import here
from .errors import Error
from .feed import Feed

if TYPE_CHECKING:  # the package does not wait for NumPy
    import numpy as np
    import numpy.typing as npt

    Arrays = Dict[str, npt.NDArray[Any]]

Shape = Tuple[int, int, int]
Resized = Dict[str, Any]  #: the arrays by name, extras, and the shape


class WarmUp(List[Dict[str, Any]]):
    """Of each shape, largest first: shape (rows, tokens, frames) and seconds of its first call. str() is a text."""

    def __str__(self) -> str:
        lines = [f"  {one['shape']!s:<18} {one['seconds']:8.2f} s" for one in self]
        total = sum(one["seconds"] for one in self)
        return "\n".join([f"{len(self)} shape{'s' * (len(self) != 1)} in {total:.2f} s", *lines])


@dataclass
class Batch:
    """As penstock.Batch, made by hand."""

    mel: npt.NDArray[np.float32]
    mel_lengths: npt.NDArray[np.int32]
    tokens: npt.NDArray[np.int32]
    token_lengths: npt.NDArray[np.int32]
    speakers: npt.NDArray[np.int32]
    utterances: npt.NDArray[np.int64]
    replaced: npt.NDArray[np.bool_]
    extras: Arrays
    shape: Shape
    ids: List[str] = field(default_factory=list)
    epoch: int = -1
    step: int = -1


def warm_up(step: Callable[[Any], object], feed: Any, *, keep: Any = ()) -> WarmUp:
    """Calls step(batch) once with a batch of every shape of the feed, largest first, so that all is compiled, and the
    most memory taken, before the first real step. Says how long each shape took: `print(penstock.warm_up(step, feed))`.

    The batches are real speech, repeated to fill their shape. The feed stays where it is. Guards take what is compiled
    meanwhile as their warm-up.

    step: called with one batch; it may be a guard, or a function around it, as lambda batch: step(params, batch)
    feed: a Feed, or what its torch(), jax() or tf() returns: the step gets batches of that kind
    keep: what the step changes and must not: torch modules and optimizers (all that has a state_dict), or TensorFlow
        variables, models and optimizers. Their values are put back, and torch's random numbers too. In JAX nothing
        changes, unless the step donates its arguments: then give it copies.
    """
    made = _maker(feed)
    source = _feed_of(feed)
    times = WarmUp()
    here.warming += 1
    try:
        with _kept(keep):
            for shape in sorted(source.shapes, key=lambda s: s[0] * (s[1] + s[2]), reverse=True):
                batch = made(shape)
                start = time.perf_counter()
                result = step(batch)
                wait(result)
                times.append({"shape": shape, "seconds": time.perf_counter() - start})
    finally:
        here.warming -= 1
    return times


def _feed_of(feed: Any) -> Feed:
    found = feed if isinstance(feed, Feed) else getattr(feed, "feed", None) or getattr(feed, "_penstock_feed", None)
    if not isinstance(found, Feed):
        raise Error(
            f"warm_up needs a Feed, or what its torch(), jax() or tf() returns, but got {feed!r}: other loaders do not "
            "say which shapes there will be; call the step with one batch of each, in `with step.warm_up():`"
        )
    return found


def _maker(feed: Any) -> Callable[[Shape], Any]:
    """Makes batches of a shape as the feed's own are, from the first of them. The feed is put back."""
    import numpy as np

    from .lending import ARRAYS

    source = _feed_of(feed)
    state = source.state()
    first = next(iter(feed))
    source.restore(state)
    frames_axis = 2 if source._settings.get("mel_layout") == "bins_first" else 1
    like: Callable[[Any, Resized], Any] = lambda _, resized: Batch(**resized)  # noqa: E731
    if isinstance(first, dict):
        from ._guard_tf import batch_like as like
    elif type(first).__module__ == "penstock.torch":
        from ._guard_torch import batch_like as like
    elif type(first).__module__ == "penstock.jax":
        from ._guard_jax import batch_like as like
    arrays = first if isinstance(first, dict) else {**{name: getattr(first, name) for name in ARRAYS}, **first.extras}
    numpy = {name: np.asarray(array) for name, array in arrays.items()}
    return lambda shape: like(first, _resized(numpy, frames_axis, shape))


def _resized(arrays: Arrays, frames_axis: int, shape: Shape) -> Resized:
    """A batch's arrays, repeated or cut to another shape. Lengths are full ones."""
    import numpy as np

    from .lending import ARRAYS

    rows, tokens, frames = shape
    old_tokens = arrays["tokens"].shape[1]
    axes = {"mel": (frames_axis, frames), "tokens": (1, tokens)}
    made: Arrays = {}
    for name, array in arrays.items():
        axis, size = axes.get(name, (1, tokens if array.ndim > 1 and array.shape[1] == old_tokens else frames))
        if array.ndim > 0:
            array = np.take(array, np.arange(rows) % len(array), 0)
        if array.ndim > 1:
            array = np.take(array, np.arange(size) % array.shape[axis], axis)
        made[name] = np.ascontiguousarray(array)
    made["mel_lengths"][:] = frames
    made["token_lengths"][:] = tokens
    always = {name: made.pop(name) for name in ARRAYS}
    return {**always, "extras": made, "shape": shape}


def wait(result: Any) -> None:
    """For a device that computes while Python goes on."""
    if "jax" in sys.modules:
        sys.modules["jax"].block_until_ready(result)
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


@contextlib.contextmanager
def _kept(keep: Any) -> Iterator[None]:
    """Puts things back as they were."""
    things = list(keep) if isinstance(keep, (list, tuple)) else [keep]
    with contextlib.ExitStack() as stack:
        for thing in things:
            if hasattr(thing, "load_state_dict"):
                from . import _guard_torch

                stack.enter_context(_guard_torch.kept(thing))
            elif hasattr(thing, "assign") or hasattr(thing, "variables"):
                from . import _guard_tf

                stack.enter_context(_guard_tf.kept(thing))
            else:
                raise Error(f"keep: needs a state_dict (torch) or variables (TensorFlow), but {thing!r} has neither")
        yield
