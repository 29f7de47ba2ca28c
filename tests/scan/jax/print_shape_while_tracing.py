import jax


@jax.jit
def crop(x):
    rows = x.shape[0]
    print(f"{x.dtype} of {x.shape}", rows)
    return x[: rows // 2]
