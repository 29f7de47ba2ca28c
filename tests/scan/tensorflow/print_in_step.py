import tensorflow as tf


@tf.function(jit_compile=True)
def train_step(batch):
    loss = model(batch)
    print(loss)  # expect: print-under-jit=hint
    return loss
