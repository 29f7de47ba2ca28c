"""What penstock.guard adds to a step that compiles nothing: microseconds a call, by framework.

Calls with and without it come in turns, in blocks of a fraction of a millisecond, so that both see the same machine; the cost is the
median of the differences.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time

import penstock

BLOCK, BLOCKS = 20, 800


def tensorflow_step():
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    batch = {"mel": tf.ones((4, 80)), "lengths": tf.ones(4)}
    return tf.function(lambda batch, rate: tf.reduce_sum(batch["mel"]) * rate), (batch, 0.5)


def jax_step():
    import jax
    import jax.numpy as jnp

    batch = {"mel": jnp.ones((4, 80)), "lengths": jnp.ones(4)}
    return jax.jit(lambda batch, rate: batch["mel"].sum() * rate), (batch, 0.5)


def torch_step():
    import torch

    batch = {"mel": torch.ones(4, 80), "lengths": torch.ones(4)}
    return torch.compile(lambda batch, rate: batch["mel"].sum() * rate, backend="eager"), (batch, 0.5)


def torch_module():
    import torch

    return torch.compile(torch.nn.Linear(80, 4), backend="eager"), (torch.ones(4, 80),)


STEPS = {"tf": tensorflow_step, "jax": jax_step, "torch": torch_step, "torch module": torch_module}


def microseconds(step, arguments) -> float:
    start = time.perf_counter()
    for _ in range(BLOCK):
        result = step(*arguments)
    if hasattr(result, "block_until_ready"):
        result.block_until_ready()
    return (time.perf_counter() - start) / BLOCK * 1e6


def measure(name: str) -> dict[str, float]:
    step, arguments = STEPS[name]()
    other = STEPS[name]()[0]  # a module takes its guard inside
    guarded = penstock.guard(other, on_retrace="raise")
    for one in (step, guarded):
        microseconds(one, arguments)
    pairs = []
    for block in range(BLOCKS):
        turns = [step, guarded] if block % 2 else [guarded, step]
        times = {one is guarded: microseconds(one, arguments) for one in turns}
        pairs.append((times[False], times[True]))
    assert guarded.report()["retraces"] == 0
    return {
        "plain_us": statistics.median(plain for plain, _ in pairs),
        "guarded_us": statistics.median(watched for _, watched in pairs),
        "cost_us": statistics.median(watched - plain for plain, watched in pairs),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", choices=STEPS, nargs="+")
    print(json.dumps({name: measure(name) for name in parser.parse_args().framework}))
