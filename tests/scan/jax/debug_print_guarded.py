import jax

VERBOSE = False


@jax.jit
def train_step(state, batch):
    loss = loss_fn(state, batch)
    if VERBOSE:
        jax.debug.print("loss {}", loss)
    return loss
