import tensorflow as tf


@tf.function
def train_step(batch, training, scale):
    optimizer.apply_gradients(grads(batch, training, scale))


for batch in dataset:
    train_step(batch, True, 0.5)
