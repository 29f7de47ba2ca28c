import gc

import jax

train_step = jax.jit(step)
for batch in loader:
    state, loss = train_step(state, batch)
    gc.collect()  # expect: cleanup-in-loop
