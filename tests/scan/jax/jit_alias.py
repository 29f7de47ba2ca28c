import jax

jit = jax.jit


@jit
def step(x):
    jax.debug.print("{}", x)  # expect: print-under-jit
    return x
