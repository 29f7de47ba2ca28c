import jax


@jax.jit
def train_step(state, batch):
    print("compiling for", batch.shape)
    return loss_fn(state, batch)
