import jax

train_step = jax.jit(step)
for batch in loader:
    state, loss = train_step(state, batch)
    jax.clear_caches()  # expect: cleanup-in-loop=critical
