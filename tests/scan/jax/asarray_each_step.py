import jax
import numpy as np

p_step = jax.pmap(step, axis_name="batch")
for batch in batches:
    state, metrics = p_step(state, batch)
    history.append(np.asarray(metrics["loss"]))  # expect: host-sync-every-step
