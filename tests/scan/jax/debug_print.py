import jax


@jax.jit
def train_step(state, batch):
    loss = loss_fn(state, batch)
    jax.debug.print("loss {}", loss)  # expect: print-under-jit=warning
    return loss
