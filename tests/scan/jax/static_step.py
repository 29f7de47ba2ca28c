from functools import partial

import jax


@partial(jax.jit, static_argnums=(2,))
def train_step(state, batch, step):
    return state.apply(batch, step), step


for step, batch in enumerate(loader):
    state, _ = train_step(state, batch, step)  # expect: python-number-argument=critical
