import jax
from flax.training import checkpoints

train_step = jax.jit(step)
for i, batch in enumerate(loader):
    state, loss = train_step(state, batch)
    if i % 1000 == 0 and jax.process_index() == 0:
        checkpoints.save_checkpoint("runs", state, i)
