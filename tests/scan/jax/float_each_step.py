import jax


@jax.jit
def train_step(state, batch):
    loss, grads = jax.value_and_grad(loss_fn)(state.params, batch)
    return state.apply_gradients(grads=grads), loss


for batch in loader:
    state, loss = train_step(state, batch)
    losses.append(float(loss))  # expect: host-sync-every-step
