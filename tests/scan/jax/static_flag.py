from functools import partial

import jax


@partial(jax.jit, static_argnums=2)
def apply(params, x, training):
    return model(params, x, training)


for x in batches:
    y = apply(params, x, True)
