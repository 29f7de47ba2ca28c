"""What a call's arguments look like to a compiler, as plain values: taken from one call and compared with another.

A signature has a leaf for every place in the arguments (`batch['mel']`), and each leaf what a compiled function may
depend on: shape, dtype, device, value. It refers to no argument, so that it may be kept.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Callable, Dict, List, NamedTuple, Optional

Leaf = Dict[str, Any]  #: "shape": (16, 344, 80), "dtype": "float32", ...
Signature = Dict[str, Leaf]  #: leaves by their places
Describe = Callable[[Any], Optional[Leaf]]  #: a framework's own leaves, None for what is no leaf of its

PRESENCE = "presence"  #: what has changed of a leaf that is new or gone
_DEEPEST = 24  #: arguments that contain themselves end somewhere


class Change(NamedTuple):
    """What is different between two calls."""

    leaf: str  #: where: batch['mel']
    what: str  #: shape, dtype, weak type, device, value, type, presence, ...
    old: str
    new: str

    def __str__(self) -> str:
        what = "" if self.what == PRESENCE else f"{self.what} "
        return f"{self.leaf}: {what}{self.old} -> {self.new}"


class Parameters:
    """The names of a function's arguments."""

    def __init__(self, function: Any) -> None:
        try:
            self._signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):
            self._signature = None

    def name(self, place: int) -> str:
        """Of an argument by its place."""
        names = list(self._signature.parameters) if self._signature else []
        return names[place] if place < len(names) else f"args[{place}]"

    def named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], defaults: bool = True) -> dict[str, Any]:
        """Arguments by name, those that were left out too; *args are args[0], args[1], ..."""
        try:
            if self._signature is None:
                raise TypeError
            bound = self._signature.bind(*args, **kwargs)
        except TypeError:
            return {**{f"args[{i}]": value for i, value in enumerate(args)}, **kwargs}
        if defaults:
            bound.apply_defaults()
        named: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            kind = self._signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                named.update({f"{name}[{i}]": one for i, one in enumerate(value)})
            elif kind is inspect.Parameter.VAR_KEYWORD:
                named.update(value)
            else:
                named[name] = value
        return named


def of(named: Mapping[str, Any], describe: Describe) -> Signature:
    """The signature of arguments by name."""
    found: Signature = {}
    for name, value in named.items():
        _walk(name, value, describe, found, 0)
    return found


def _walk(place: str, value: Any, describe: Describe, found: Signature, depth: int) -> None:
    leaf = describe(value)
    inside = None if leaf is not None or depth > _DEEPEST else children(value)
    if inside is None:
        found[place] = leaf if leaf is not None else plain(value)
        return
    found[place] = {"type": type(value).__name__}
    for step, child in inside:
        _walk(place + step, child, describe, found, depth + 1)


def children(value: Any) -> list[tuple[str, Any]] | None:
    """What is in a container, each with its step from there; None for what is none."""
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", child) for key, child in value.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f".{name}", getattr(value, name)) for name in value._fields]
    if isinstance(value, (list, tuple)):
        return [(f"[{i}]", child) for i, child in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # What is made when it is asked for, as in penstock.torch.Batch, is looked at once somebody has asked.
        names: Iterable[str] = [field.name for field in dataclasses.fields(value)]
        made = getattr(value, "__dict__", None)
        return [(f".{name}", getattr(value, name)) for name in names if made is None or name in made]
    return None


def plain(value: Any) -> Leaf:
    """Of a Python value: itself when it is simple, otherwise which one it is."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, enum.Enum)):
        return {"value": value}
    if isinstance(value, type):
        return {"value": f"{value.__module__}.{value.__qualname__}"}
    name = getattr(value, "__qualname__", None)
    return {"type": type(value).__name__, "identity": f"{name or type(value).__name__} at {id(value):#x}"}


def array(value: Any) -> Leaf:
    """Of a NumPy array or scalar."""
    return {"shape": tuple(value.shape), "dtype": str(value.dtype)}


def nearest(known: Iterable[tuple[int, Signature]], new: Signature) -> tuple[int | None, list[Change]]:
    """Of the calls that were compiled for, the one that differs least from the new one (the last of these), and in
    what it does. None when there was no call."""
    best: tuple[int | None, list[Change]] = None, []
    for step, old in known:
        different = changes(old, new)
        if best[0] is None or len(different) <= len(best[1]):
            best = step, different
    return best


def changes(old: Signature, new: Signature) -> list[Change]:
    """In the order of the new signature's leaves; what is gone comes last."""
    found: List[Change] = []
    for place, leaf in new.items():
        if place not in old:
            found.append(Change(place, PRESENCE, "absent", text(leaf)))
        elif old[place] != leaf:
            found += _leaf_changes(place, old[place], leaf)
    found += [Change(place, PRESENCE, text(leaf), "absent") for place, leaf in old.items() if place not in new]
    return found


def _leaf_changes(place: str, old: Leaf, new: Leaf) -> list[Change]:
    if old.keys() != new.keys():
        return [Change(place, "type", text(old), text(new))]
    return [Change(place, what, _shown(what, old), _shown(what, new)) for what in new if old[what] != new[what]]


def text(leaf: Leaf) -> str:
    """A leaf in a few words: float32 (16, 80)."""
    if "value" in leaf:
        return f"{type(leaf['value']).__name__} {_shown('value', leaf)}"
    if "shape" in leaf:
        return f"{leaf.get('dtype', '')} {leaf['shape']}".strip()
    return _shown("identity" if "identity" in leaf else "type", leaf)


def _shown(what: str, leaf: Leaf, most: int = 80) -> str:
    value = leaf.get(what)
    shown = value if isinstance(value, str) and what != "value" else repr(value)
    return shown if len(shown) <= most else shown[: most - 3] + "..."
