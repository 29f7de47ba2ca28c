"""A feed as a tf.data.Dataset. Its tensors are the feed's own memory.

    dataset = feed.tf()
    for batch in dataset:                  # to the end of the epoch; the next loop takes the next one
        step(batch["mel"], batch["mel_lengths"], batch["tokens"], batch["token_lengths"])

Nothing is prefetched here, since the feed is ahead of its consumer by itself: `feed.state()` is behind the batch that
the loop has. With a prefetch of your own, `state_after(feed, batch)` is.
"""

from __future__ import annotations

import sys
import weakref
from types import FrameType
from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np
import tensorflow as tf

from .errors import Error
from .feed import Feed
from .lending import lender

Dimensions = Tuple[Optional[int], ...]


def dataset(feed: Feed) -> Any:
    """A dataset of dicts: mel, mel_lengths, tokens, token_lengths, speakers, utterances, replaced, epoch, step, and
    the extras by their names. An iteration goes from where the feed stands to the end of the epoch; the next one, and
    `repeat()`, take the next epoch.

    With one shape all dimensions are known beforehand. With more, lengths are open in `element_spec` and known in
    each tensor, so that a tf.function is traced once per shape; `model.fit`, which would trace once with open
    lengths, is refused.
    """
    feed._move_to("cpu")
    spec = _spec(feed)
    fixed = _one_shape(feed)
    lend = lender(feed)
    # TensorFlow never lets go of a Python function, so what it has must not keep the feed; the dataset does.
    kept_by_dataset = weakref.ref(feed)

    def the_feed() -> Feed:
        feed = kept_by_dataset()
        if feed is None:
            raise Error("the feed of this dataset is gone: keep the dataset for as long as something iterates over it")
        return feed

    def start() -> np.int64:
        feed = the_feed()
        if not fixed and _inside_fit():
            raise Error(_FIT_REFUSED.format(len(feed.shapes)))
        feed._move_to("cpu")
        return np.int64(feed._left())

    def fetch() -> List[Any]:
        batch = the_feed().next()
        arrays = {**lend(batch), "epoch": np.int64(batch.epoch), "step": np.int64(batch.step)}
        return [arrays[name] for name in spec]

    def element(_: Any) -> Dict[str, Any]:
        tensors = tf.numpy_function(fetch, [], [tensor.dtype for tensor in spec.values()])
        for tensor, expected in zip(tensors, spec.values()):
            tensor.set_shape(expected.shape)
        return dict(zip(spec, tensors))

    def epoch(_: Any) -> Any:
        return tf.data.Dataset.range(tf.numpy_function(start, [], tf.int64)).map(element)

    # TensorFlow would run ahead behind our back: by a prefetch, and by making every map a parallel one.
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    options.experimental_optimization.map_parallelization = False
    # Each process's feed has its own rows already (rank, world).
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    epochs = tf.data.Dataset.range(1).flat_map(epoch).with_options(options)
    epochs._penstock_feed = feed
    return epochs


def state_after(feed: Feed, batch: Mapping[str, Any]) -> Dict[str, Any]:
    """The feed's state behind this batch, however far a prefetch has run ahead of it."""
    return {**feed.state(), "epoch": int(batch["epoch"]), "step": int(batch["step"]) + 1}


def _one_shape(feed: Feed) -> bool:
    return len(feed.shapes) == 1 and feed._settings.get("shapes") != "dynamic"


def _spec(feed: Feed) -> Dict[str, Any]:
    """Every array's type, with None for the dimensions in which shapes differ."""
    fixed = _one_shape(feed)
    all_rows, all_tokens, all_frames = ({shape[i] for shape in feed.shapes} for i in range(3))
    rows = all_rows.pop() if len(all_rows) == 1 else None
    tokens = all_tokens.pop() if fixed else None
    frames = all_frames.pop() if fixed else None
    bins = int(feed._settings.get("n_mels"))
    bins_first = feed._settings.get("mel_layout") == "bins_first"
    spec = {
        "mel": tf.TensorSpec((rows, bins, frames) if bins_first else (rows, frames, bins), tf.float32),
        "mel_lengths": tf.TensorSpec((rows,), tf.int32),
        "tokens": tf.TensorSpec((rows, tokens), tf.int32),
        "token_lengths": tf.TensorSpec((rows,), tf.int32),
        "speakers": tf.TensorSpec((rows,), tf.int32),
        "utterances": tf.TensorSpec((rows,), tf.int64),
        "replaced": tf.TensorSpec((rows,), tf.bool),
        "epoch": tf.TensorSpec((), tf.int64),
        "step": tf.TensorSpec((), tf.int64),
    }
    return {**spec, **_extras_spec(feed, rows, fixed)}


def _extras_spec(feed: Feed, rows: Optional[int], fixed: bool) -> Dict[str, Any]:
    """What extras look like is known from a batch alone; the feed is put back behind it."""
    if not feed._settings.get("extra"):
        return {}
    state = feed.state()
    batch = feed.next()
    feed.restore(state)

    def dimensions(sizes: Tuple[int, ...]) -> Dimensions:
        lengths = () if fixed else batch.shape[1:]
        return (rows, *(None if i == 0 and size in lengths else size for i, size in enumerate(sizes[1:])))

    return {name: tf.TensorSpec(dimensions(array.shape), array.dtype) for name, array in batch.extras.items()}


_FIT_REFUSED = """\
model.fit traces its step once, with open lengths, and these batches have {} shapes. Either open the feed with \
shapes=1 (or pad_to_fixed_length=True), or write the loop, which is compiled once per shape:

    @tf.function
    def step(batch): ...

    for batch in feed.tf():
        step(batch)
"""


def _inside_fit() -> bool:
    """Whether Keras' fit waits for a dataset. Datasets derived from ours are its own, and their threads as well, so
    what it does can be seen from the waiting thread's calls alone. Code of the user's in between (a callback that
    iterates) is not fit."""
    return any(_is_fit(frame) for frame in sys._current_frames().values())


def _is_fit(frame: Optional[FrameType]) -> bool:
    def module(frame: FrameType) -> str:
        return str(frame.f_globals.get("__name__", ""))

    while frame is not None and module(frame).startswith(("tensorflow.", "penstock.")):
        frame = frame.f_back
    while frame is not None and module(frame).startswith(("keras.", "tf_keras.")):
        if frame.f_code.co_name == "fit" and not module(frame).startswith(_EAGER_BACKENDS):
            return True
        frame = frame.f_back
    return False


#: Keras with these compiles once per shape, or not at all.
_EAGER_BACKENDS = ("keras.src.backend.jax.", "keras.src.backend.torch.", "keras.src.backend.numpy.")
