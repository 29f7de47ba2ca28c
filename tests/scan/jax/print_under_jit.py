import jax


@jax.jit
def train_step(state, batch):
    loss = loss_fn(state, batch)
    print("loss is", loss)  # expect: print-under-jit=hint
    return loss
