import jax
import orbax.checkpoint as ocp

manager = ocp.CheckpointManager("runs", options=ocp.CheckpointManagerOptions(save_interval_steps=1000))
train_step = jax.jit(step)
for i, batch in enumerate(loader):
    state, loss = train_step(state, batch)
    manager.save(i, args=ocp.args.StandardSave(state))
