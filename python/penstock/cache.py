"""A dataset's caches: what is computed once. Each function says in a dict what `penstock cache ... --json` prints.

All of them take every key of the configuration (see penstock.Feed), and `progress`, which is called now and then as
progress(what, done, total). Ctrl-C ends them in good order: what was built stays, and the next build goes on there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from . import settings as _settings
from ._penstock import Settings, cache_build, cache_export, cache_list, cache_prune, cache_verify

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .dataset import Progress
    from .keys import Keys, Path

__all__ = ["build", "export", "list", "prune", "verify"]


def _load(dataset_path: Any, config: Any, keys: Any) -> Settings:
    """A cache holds all splits."""
    return _settings.load(dataset_path, config, keys, split="all")


def build(
    dataset_path: Path | None = None,
    *,
    only: str = "",
    overwrite: bool = False,
    shard_mib: int = 1024,
    progress: Progress | None = None,
    config: Path | None = None,
    **keys: Unpack[Keys],
) -> dict[str, Any]:
    """Computes mels and tokens once, in parallel; builds what is missing.

    only: one array: mel (or pcm), tokens, or the name of an extra
    overwrite: build every record again
    shard_mib: size of a shard file
    """
    return cache_build(_load(dataset_path, config, keys), only, overwrite, shard_mib, progress)


def verify(
    dataset_path: Path | None = None,
    *,
    fix: bool = False,
    progress: Progress | None = None,
    config: Path | None = None,
    **keys: Unpack[Keys],
) -> dict[str, Any]:
    """Checks every record and every .npy file against the dataset.

    fix: drop what is bad, stale or orphaned and build what is missing
    """
    return cache_verify(_load(dataset_path, config, keys), fix, progress)


def export(
    dataset_path: Path | None = None,
    out: Path = "",
    *,
    progress: Progress | None = None,
    config: Path | None = None,
    **keys: Unpack[Keys],
) -> dict[str, Any]:
    """Writes what the feed would deliver as out/mels/<id>.npy and out/tokens/<id>.npy."""
    if not os.fspath(out):
        raise TypeError("export to where? Give a folder: export(dataset_path, out)")
    return cache_export(_load(dataset_path, config, keys), os.fspath(out), progress)


def list(
    dataset_path: Path | None = None,
    *,
    progress: Progress | None = None,
    config: Path | None = None,
    **keys: Unpack[Keys],
) -> dict[str, Any]:
    """The packs of a dataset: parameters, size, age, and whether this configuration uses them."""
    return cache_list(_load(dataset_path, config, keys), progress)


def prune(
    dataset_path: Path | None = None,
    *,
    remove: bool = False,
    unused_days: float = 30,
    progress: Progress | None = None,
    config: Path | None = None,
    **keys: Unpack[Keys],
) -> dict[str, Any]:
    """Says what is stale or unused.

    remove: and removes it
    unused_days: packs of other configurations that no feed has opened for so long are unused
    """
    return cache_prune(_load(dataset_path, config, keys), remove, unused_days, progress)
