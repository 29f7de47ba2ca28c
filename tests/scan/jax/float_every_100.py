import jax


@jax.jit
def train_step(state, batch):
    loss, grads = jax.value_and_grad(loss_fn)(state.params, batch)
    return state.apply_gradients(grads=grads), loss


for step, batch in enumerate(loader):
    state, loss = train_step(state, batch)
    if step % 100 == 0:
        print(step, float(loss))
