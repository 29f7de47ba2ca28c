import tensorflow as tf


@tf.function
def train_step(batch, step):
    loss = model(batch)
    if step % 100 == 0:
        tf.print("loss", loss)
    return loss
