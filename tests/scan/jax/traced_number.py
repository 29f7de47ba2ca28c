import jax


@jax.jit
def train_step(state, batch, step):
    return state.apply(batch, step), step


for step, batch in enumerate(loader):
    state, _ = train_step(state, batch, step)
