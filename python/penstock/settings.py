"""Arguments as settings: every key of the configuration, under its own name."""

from __future__ import annotations

import os
import warnings
from typing import Any, Mapping, Optional

from ._penstock import Settings


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ",".join(f"{name}={os.fspath(folder)}" for name, folder in value.items())
    if isinstance(value, (list, tuple)):
        return ",".join(_text(item) for item in value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return str(value)


def load(dataset_path: Any, config: Any, keys: Mapping[str, Any]) -> Settings:
    """The settings of a YAML file and of arguments; arguments win. What is None is left as it is."""
    given = dict(keys) if dataset_path is None else {"dataset_path": dataset_path, **keys}
    values = {name: _text(value) for name, value in given.items() if value is not None}
    settings = Settings.load("" if config is None else os.fspath(config), values)
    for note in settings.notes:
        warnings.warn(note, stacklevel=3)
    return settings
