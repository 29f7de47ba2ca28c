import jax


def update(params, batch, step):
    return params, step


fast = jax.jit(update, static_argnames=("step",))
for i in range(10000):
    params, _ = fast(params, batch, step=i)  # expect: python-number-argument
