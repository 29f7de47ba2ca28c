from functools import partial

import jax
import jax.numpy as jnp


@partial(jax.jit, donate_argnums=(0, 1))
def update(params, opt_state, batch):
    loss, grads = jax.value_and_grad(loss_fn)(params, batch)
    updates, opt_state = optimizer.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss


def train(params, opt_state, loader):
    for batch in loader:
        params, opt_state, loss = update(params, opt_state, batch)
        print(f"{loss.item():.3f}")  # expect: host-sync-every-step
