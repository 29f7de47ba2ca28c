import jax
from flax.training import checkpoints

train_step = jax.jit(step)
for i, batch in enumerate(loader):
    state, loss = train_step(state, batch)
    checkpoints.save_checkpoint("runs", state, i)  # expect: checkpoint-every-step
