import jax


def step(x):
    print(x)
    return x


jax.vmap(step)(x)
