from flax import nnx


@nnx.jit
def train_step(model, optimizer, batch):
    print(batch)  # expect: print-under-jit=hint
    return model(batch)
