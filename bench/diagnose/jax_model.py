"""A small network and its step, for the JAX scripts."""
import jax
import jax.numpy as jnp
import numpy as np


def made(width, layers=2):
    random, sizes = np.random.default_rng(0), [80, *[width] * layers, 80]
    return [(jnp.asarray(random.standard_normal((a, b)) / a**0.5, jnp.float32), jnp.zeros(b)) for a, b in zip(sizes, sizes[1:])]


def forward(parameters, x):
    for weight, bias in parameters[:-1]:
        x = jax.nn.gelu(x @ weight + bias)
    return x @ parameters[-1][0] + parameters[-1][1]


def loss_of(parameters, mel):
    return jnp.mean((forward(parameters, mel) - mel) ** 2)


@jax.jit
def train_step(parameters, mel):
    loss, gradients = jax.value_and_grad(loss_of)(parameters, mel)
    return jax.tree.map(lambda p, g: p - 1e-3 * g, parameters, gradients), loss
