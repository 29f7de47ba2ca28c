import jax
from jax import debug, jit


def loss_fn(params, x):
    y = params * x
    debug.print("{y}", y=y)  # expect: print-under-jit
    return y.sum()


grad = jit(jax.value_and_grad(loss_fn))
