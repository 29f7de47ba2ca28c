import tensorflow as tf


@tf.function
def train_step(batch):
    loss = model(batch)
    tf.print("loss", loss)  # expect: print-under-jit=warning
    return loss
