import functools

import jax


@functools.partial(jax.jit, static_argnames="step")
def update(params, batch, step):
    return params, step


for i in range(10000):
    params, _ = update(params, batch, i)  # expect: python-number-argument
