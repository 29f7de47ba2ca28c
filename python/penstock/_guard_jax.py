"""A jax.jit function under watch.

JAX keeps a program for every signature, and its cache grows by one for each. Not all of these are compiled: a NumPy
array in the place of a JAX one finds the program that there is. So a growth counts when JAX has traced or compiled
meanwhile, which it tells to listeners."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Callable

import jax
import numpy as np
from jax import monitoring
from jax.api_util import shaped_abstractify

from . import _signature
from ._guard import Compilation, Guard
from ._signature import Change, Leaf, Signature
from .lending import ARRAYS

try:
    from jax._src.core import trace_state_clean as _trace_state_clean
except ImportError:  # another JAX: what is called while another function is traced is counted too

    def _trace_state_clean() -> bool:
        return True


class _Compiled(threading.local):
    """Of this thread."""

    times = 0


_compiled = _Compiled()


def _listen(event: str, duration_secs: float, **kwargs: Any) -> None:
    if event.startswith("/jax/core/compile/"):  # tracing, lowering, compiling
        _compiled.times += 1


monitoring.register_event_duration_secs_listener(_listen)


class Jitted:
    """A function of jax.jit."""

    kind = "jax.jit"

    def __init__(self, function: Any) -> None:
        self._function = function
        self.entries = function._cache_size
        self._parameters = _signature.Parameters(function)
        known = getattr(function, "_jit_info", None)
        self._static_places = set(getattr(known, "static_argnums", None) or ())
        self._static_names = set(getattr(known, "static_argnames", None) or ())

    def mark(self) -> tuple[int, int]:
        return self.entries(), _compiled.times

    def tracing(self) -> bool:
        return not _trace_state_clean()

    def examine(self, before: tuple[int, int]) -> Compilation:
        entries, times = (max(now - then, 0) for now, then in zip(self.mark(), before))
        return Compilation(entries if times else 0)

    def signature(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Signature:
        """Arguments that were left out are no part of it, and one that is passed by its name is another one to JAX."""
        static = {i % len(args) for i in self._static_places if -len(args) <= i < len(args)}
        found: Signature = {}
        for place, (name, value) in enumerate(self._parameters.named(args, {}, defaults=False).items()):
            _add(found, name, value, place in static or name in self._static_names)
        for name, value in kwargs.items():
            _add(found, f"{name}=", value, name in self._static_names)
        for setting in _SETTINGS:
            found[f"jax.config.{setting}"] = {"value": str(getattr(jax.config, setting, None))}
        return found

    def causes(self, changes: list[Change], _: Compilation) -> list[Change]:
        """A tree that has other leaves has another structure: that says nothing more."""
        return [change for change in changes if change.what != "structure"] or changes

    def install(self, guarded: Callable[[Any], Guard[Any]]) -> Any:
        return guarded(self._function)


_SETTINGS = ("jax_enable_x64", "jax_default_matmul_precision", "jax_default_device", "jax_debug_nans")


def _add(found: Signature, name: str, value: Any, static: bool) -> None:
    if static:
        found[name] = {"value": value if isinstance(value, _SIMPLE) else f"{value!r:.200}, hash {hash(value):#x}"}
        return
    leaves, structure = jax.tree_util.tree_flatten_with_path(value)
    for path, leaf in leaves:
        found[name + jax.tree_util.keystr(path)] = _leaf(leaf)
    if str(structure) != _A_LEAF:
        found[f"{name} as a tree"] = {"structure": str(structure)}


_A_LEAF = str(jax.tree_util.tree_structure(0))
_SIMPLE = (bool, int, float, complex, str, bytes, type(None))


def _leaf(value: Any) -> Leaf:
    """Of an array, or of a number, which is a weakly typed array."""
    try:
        aval = shaped_abstractify(value)
    except TypeError:
        return _signature.plain(value)
    return {
        "shape": tuple(aval.shape),
        "dtype": str(aval.dtype),
        "weak type": bool(getattr(aval, "weak_type", False)),
        "device": _device(value),
    }


def _device(value: Any) -> str:
    if isinstance(value, np.ndarray) or not getattr(value, "_committed", False):
        return "uncommitted"
    sharding = value.sharding
    devices = sorted(map(str, sharding.device_set))
    return devices[0] if len(devices) == 1 else str(sharding)


def batch_like(first: Any, arrays: Mapping[str, Any]) -> Any:
    """A penstock.jax.Batch with these arrays, where those of the first one are."""
    from .jax import Batch

    always = {name: arrays[name] for name in ARRAYS}
    always, extras = jax.device_put((always, arrays["extras"]), first.mel.sharding)
    return Batch(**always, extras=extras, frames_axis=first.frames_axis)
