"""Trains a small model of the next mel frame in JAX: the step is compiled once per shape.

python examples/python/jax_train.py data/LJSpeech-1.1
"""

import argparse
import time

import jax
import jax.numpy as jnp

import penstock
from penstock.jax import Batch

Model = dict[str, jax.Array]

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("dataset")
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--epochs", type=int, default=2)
arguments = parser.parse_args()

feed = penstock.Feed(arguments.dataset, batch_size=arguments.batch_size, shapes=4, seed=7)
bins, hidden, rate = 80, 256, 1e-3
first, second = jax.random.split(jax.random.key(7))
model = {
    "in": jax.random.normal(first, (bins, hidden)) / bins**0.5,
    "out": jax.random.normal(second, (hidden, bins)) / hidden**0.5,
    "bias": jnp.zeros(bins),
}
# Committed, as the batches and all that is computed from them: or the first step would be compiled for what is not.
model = jax.device_put(model, jax.devices()[0])
momentum = jax.tree.map(jnp.zeros_like, model)


def loss_of(model: Model, batch: Batch) -> jax.Array:
    prediction = jax.nn.relu(batch.mel[:, :-1] @ model["in"]) @ model["out"] + model["bias"]
    error = jnp.abs(prediction - batch.mel[:, 1:]).mean(axis=-1)
    valid = jnp.arange(error.shape[1]) < batch.mel_lengths[:, None] - 1
    return jnp.sum(error * valid) / jnp.sum(valid)


compiled: list[tuple[int, int, int]] = []


@jax.jit  # a batch is a pytree of arrays: one compilation for each of the four shapes
def step(model: Model, momentum: Model, batch: Batch) -> tuple[Model, Model, jax.Array]:
    compiled.append(batch.shape)  # Python runs while JAX traces, not in every step
    loss, gradient = jax.value_and_grad(loss_of)(model, batch)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
    return jax.tree.map(lambda w, m: w - rate * m, model, momentum), momentum, loss


for epoch in range(arguments.epochs):
    began, waited, losses = time.perf_counter(), feed.stats()["wait_seconds"], []
    for batch in feed.jax():
        model, momentum, loss = step(model, momentum, batch)
        losses.append(loss)
    last = float(losses[-1])  # waits until the device is done
    waited = (feed.stats()["wait_seconds"] - waited) / (time.perf_counter() - began)
    print(
        f"epoch {epoch}  loss {float(losses[0]):.3f} -> {last:.3f}  "
        f"{len(losses)} steps  waited {waited:.1%} of the time  "
        f"{len(compiled)} compilations for {len(feed.shapes)} shapes"
    )
