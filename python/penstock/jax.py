"""A feed's batches as JAX arrays.

    for batch in feed.jax():                       # or feed.jax(mesh=mesh): rows sharded over its first axis
        params, loss = step(params, batch)         # a batch is a pytree: one jit compilation per shape

JAX works asynchronously, so the next batch is placed while the device computes, without a prefetch; and
`feed.state()` is behind the batch that the loop has.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, List, Optional, Tuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from . import _penstock
from ._penstock import Settings
from .errors import Error
from .feed import Feed, View
from .lending import ARRAYS, lender


@dataclasses.dataclass(eq=False)
class Batch:
    """A full batch of committed arrays. Its arrays are a pytree's leaves; ids, epoch and step do not go along into
    transformations, where they would be those of another batch."""

    mel: jax.Array  #: [rows, frames, bins], or [rows, bins, frames] (mel_layout)
    mel_lengths: jax.Array  #: [rows]
    tokens: jax.Array  #: [rows, tokens]
    token_lengths: jax.Array  #: [rows]
    speakers: jax.Array  #: [rows] numbers of Feed.speakers; -1 in a row of length 0
    utterances: jax.Array  #: [rows] numbers in the dataset, int32 unless jax_enable_x64 is set
    replaced: jax.Array  #: [rows] where a bad sample's place was filled by rule
    extras: Dict[str, jax.Array]  #: by name
    frames_axis: int = -2  #: of mel
    ids: List[str] = dataclasses.field(default_factory=list)  #: of this process's rows
    epoch: int = -1
    step: int = -1

    @property
    def shape(self) -> Tuple[int, int, int]:
        """(rows, tokens, frames): of all processes together when there is a mesh."""
        return (self.tokens.shape[-2], self.tokens.shape[-1], self.mel.shape[self.frames_axis])


_LEAVES = (*ARRAYS, "extras")


def _flatten(batch: Batch) -> Tuple[Tuple[Any, ...], int]:
    return tuple(getattr(batch, name) for name in _LEAVES), batch.frames_axis


def _flatten_with_keys(batch: Batch) -> Tuple[Tuple[Tuple[Any, Any], ...], int]:
    leaves, frames_axis = _flatten(batch)
    return tuple((jax.tree_util.GetAttrKey(name), leaf) for name, leaf in zip(_LEAVES, leaves)), frames_axis


def _unflatten(frames_axis: int, leaves: Any) -> Batch:
    return Batch(**dict(zip(_LEAVES, leaves)), frames_axis=frames_axis)


jax.tree_util.register_pytree_with_keys(Batch, _flatten_with_keys, _unflatten, _flatten)

Place = Callable[[_penstock.Batch], Dict[str, jax.Array]]


def view(feed: Feed, device: Optional[jax.Device] = None, mesh: Optional[Mesh] = None) -> View[Batch]:
    """Batches on `device` (the default: the first one), or with their rows sharded over the first axis of `mesh`. On
    the CPU arrays are the feed's own memory.

    With several processes each one's feed takes its rows of the global batch: `rank` and `world` follow from the mesh
    unless the feed was opened with them.
    """
    if mesh is not None:
        if device is not None:
            raise Error("feed.jax: a device or a mesh, not both")
        return _view(feed, _over(feed, mesh), "cpu")
    target = jax.devices()[0] if device is None else device
    if target.platform == "gpu" and feed._settings.get("device").startswith("cuda"):
        return _view(feed, _on_device(target), f"cuda:{target.local_hardware_id}")
    lend = lender(feed)
    return _view(feed, lambda batch: jax.device_put(lend(batch), target), "cpu")


def _view(feed: Feed, place: Place, device: str) -> View[Batch]:
    frames_axis = -1 if feed._settings.get("mel_layout") == "bins_first" else -2

    def convert(batch: _penstock.Batch) -> Batch:
        arrays = place(batch)
        always = {name: arrays.pop(name) for name in ARRAYS}
        return Batch(
            **always, extras=arrays, frames_axis=frames_axis, ids=batch.ids, epoch=batch.epoch, step=batch.step
        )

    return View(feed, convert, device)


def _on_device(target: jax.Device) -> Place:
    """Batches that Penstock itself has copied to the device."""

    def place(batch: _penstock.Batch) -> Dict[str, jax.Array]:
        arrays = {**{name: getattr(batch, name) for name in ARRAYS}, **batch.extras}
        return {name: jax.dlpack.from_dlpack(array, device=target) for name, array in arrays.items()}

    return place


def _over(feed: Feed, mesh: Mesh) -> Place:
    axis = mesh.axis_names[0]
    sharding = NamedSharding(mesh, PartitionSpec(axis))
    rank, world = _share(mesh)
    if world > 1 and feed._settings.get("world") == "1":
        _take_share(feed, rank, world)
    devices = mesh.shape[axis] // world
    for rows, _, _ in feed.shapes:
        if rows % devices:
            raise Error(
                f"batch_size must be a multiple of {devices}, the devices of this process along the mesh's axis "
                f"{axis!r}, but is {rows}"
            )
    lend = lender(feed)
    if world == 1:
        return lambda batch: jax.device_put(lend(batch), sharding)
    return lambda batch: {
        name: jax.make_array_from_process_local_data(sharding, array) for name, array in lend(batch).items()
    }


def _share(mesh: Mesh) -> Tuple[int, int]:
    """Which part of the global batch's rows this process holds, of how many. Processes whose devices are replicas
    along the first axis hold the same."""
    blocks: Dict[int, List[int]] = {}
    for block, devices in enumerate(np.reshape(mesh.devices, (len(mesh.devices), -1))):
        for process in {device.process_index for device in devices}:
            blocks.setdefault(process, []).append(block)
    parts = sorted({tuple(held) for held in blocks.values()})
    if sum(map(len, parts)) != len(mesh.devices) or len({len(part) for part in parts}) != 1:
        raise Error(f"the processes' devices must share the mesh's axis {mesh.axis_names[0]!r} in equal parts")
    if jax.process_index() not in blocks:
        raise Error(f"process {jax.process_index()} has no device in the mesh")
    return parts.index(tuple(blocks[jax.process_index()])), len(parts)


def _take_share(feed: Feed, rank: int, world: int) -> None:
    """Opens the feed again, for these rows of global batches that are `world` times larger."""
    state = feed.state()
    if state["epoch"] or state["step"]:
        raise Error(
            "this feed has begun as the only one: open it with rank= and world=, or call jax(mesh=...) before anything "
            "is taken or restored"
        )
    feed.close()
    feed._open(Settings.load("", {**feed._settings.values(), "rank": str(rank), "world": str(world)}))
