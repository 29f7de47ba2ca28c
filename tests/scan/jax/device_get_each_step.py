import jax

step = jax.jit(make_step(model))
for batch in batches:
    state, metrics = step(state, batch)
    history.append(jax.device_get(metrics))  # expect: host-sync-every-step
