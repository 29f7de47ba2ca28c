"""What frameworks themselves take to accept a batch's seven arrays: `floor.py jax|tf DATA`, without a feed at work.

The same batch again and again, in warm caches; one JSON line is the result. A feed's batches cannot cost less."""

import json
import pathlib
import sys
import timeit

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "peers"))
import loop  # isort: skip, before NumPy: it sets the thread counts

import penstock
from penstock.lending import ARRAYS


def jax(arrays):
    import jax

    device = jax.devices()[0]
    return {"jax.device_put of the seven": lambda: jax.device_put(arrays, device)}


def tf(arrays):
    import tensorflow as tf

    options = tf.data.Options()
    options.experimental_optimization.map_parallelization = False

    def batches(values):
        types = [value.dtype for value in values]
        made = tf.data.Dataset.range(1 << 40).map(lambda _: tuple(tf.numpy_function(lambda: values, [], types)))
        return iter(made.with_options(options))

    counting, one, seven = (
        iter(tf.data.Dataset.range(1 << 40)),
        batches([arrays["speakers"]]),
        batches([*arrays.values()]),
    )
    return {
        "tf.data, which counts": lambda: next(counting),
        "tf.data with a Python function that returns one array": lambda: next(one),
        "tf.data with a Python function that returns the seven": lambda: next(seven),
    }


def main(framework, data, calls=500):
    feed = penstock.Feed(
        data, split="all", batch_size=loop.BATCH, max_mel_frames=880, max_text_length=256, pad_to_fixed_length=True
    )
    batch = feed.next()
    costs = {"jax": jax, "tf": tf}[framework]({name: getattr(batch, name) for name in ARRAYS})
    microseconds = {
        name: min(timeit.repeat(call, number=calls, repeat=5)) / calls * 1e6 for name, call in costs.items()
    }
    print(json.dumps(microseconds), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
