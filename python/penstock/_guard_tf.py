"""A tf.function under watch. TensorFlow counts its traces, and says which arguments look the same to it: tensors and
NumPy arrays by shape and dtype, Python values by themselves, objects by which one they are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Callable

import numpy as np
import tensorflow as tf

from . import _signature
from ._guard import Compilation, Guard
from ._signature import Change, Leaf, Signature


class Function:
    """A tf.function."""

    kind = "tf.function"

    def __init__(self, function: Any) -> None:
        self._function = function
        self.mark = self.entries = function.experimental_get_tracing_count
        self._parameters = _signature.Parameters(function.python_function)

    def tracing(self) -> bool:
        return not tf.executing_eagerly()

    def signature(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Signature:
        return _signature.of(self._parameters.named(args, kwargs), _leaf)

    def examine(self, before: int) -> Compilation:
        return Compilation(max(self.mark() - before, 0))

    def causes(self, changes: list[Change], _: Compilation) -> list[Change]:
        return changes

    def install(self, guarded: Callable[[Any], Guard[Any]]) -> Any:
        return guarded(self._function)


def _leaf(value: Any) -> Leaf | None:
    if isinstance(value, tf.Variable):
        return {"type": "Variable", "shape": _sizes(value.shape), "dtype": value.dtype.name}
    if isinstance(value, tf.Tensor):
        return {"type": "Tensor", "shape": _sizes(value.shape), "dtype": value.dtype.name}
    if isinstance(value, (np.ndarray, np.generic)):
        return {"type": "Tensor", **_signature.array(value)}
    if isinstance(value, tf.__internal__.CompositeTensor):  # ragged and sparse tensors, a dataset's iterator
        return {"type": type(value).__name__, "spec": str(tf.type_spec_from_value(value))}
    return None


def _sizes(shape: Any) -> tuple[int | None, ...] | str:
    return tuple(shape) if shape.rank is not None else "unknown"


def batch_like(first: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """A batch of feed.tf() with these arrays."""
    made = {**arrays, **arrays["extras"], "epoch": first["epoch"], "step": first["step"]}
    return {name: tf.constant(made[name]) for name in first}


@contextlib.contextmanager
def kept(thing: Any) -> Iterator[None]:
    """Gives a variable, or all of a model or optimizer, the value back that it has here."""

    def variables() -> list[Any]:
        return [thing] if hasattr(thing, "assign") else list(thing.variables)

    values = {id(variable): np.array(variable.numpy()) for variable in variables()}
    try:
        yield
    finally:
        for variable in variables():
            if id(variable) in values:
                variable.assign(values[id(variable)])
            else:  # made meanwhile, as the slots of an optimizer are: all of them begin as zeros
                variable.assign(tf.zeros_like(variable))
