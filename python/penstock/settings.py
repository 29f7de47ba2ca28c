"""Arguments as settings: every key of the configuration, under its own name."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

from ._penstock import Settings
from .errors import Error


def text(name: str, value: Any) -> str:
    """A value as a configuration has it. TypeError for what cannot be one."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()  # a number of NumPy, torch or JAX
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, os.PathLike)):
        path = os.fspath(value)
        if isinstance(path, str):
            return path
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, Mapping):
        return ",".join(f"{key}={text(name, folder)}" for key, folder in value.items())
    raise TypeError(f"{name}: must be text, a number, True or False, but is {value!r} ({type(value).__name__})")


def load(dataset_path: Any, config: Any, keys: Mapping[str, Any], *, split: str | None = None) -> Settings:
    """The settings of a dataset, from a YAML file and from arguments; arguments win. What is None is left as it is.

    `split`: what the key of this name is when no argument says it.
    """
    given = {"dataset_path": dataset_path, **keys}
    if given.get("split") is None:
        given["split"] = split
    settings = of(config, given)
    if not any(settings.get(name) for name in ("dataset_path", "train_data", "metadata_train_file")):
        raise Error("which dataset? Give its folder, or train_data")
    for note in settings.notes:
        warnings.warn(note, stacklevel=4)
    return settings


def of(config: Any, keys: Mapping[str, Any]) -> Settings:
    """The same for settings without a dataset, such as a mel's."""
    values = {name: text(name, value) for name, value in keys.items() if value is not None}
    return Settings.load("" if config is None else os.fspath(config), values)
