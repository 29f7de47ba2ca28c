import jax
import numpy as np

step = jax.jit(make_step(model))
for batch in batches:
    state, loss = step(state, batch)
    history.append(loss)
print(np.mean(jax.device_get(history)))
