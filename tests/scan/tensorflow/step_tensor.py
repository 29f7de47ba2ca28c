import tensorflow as tf


@tf.function
def train_step(batch, step):
    optimizer.apply_gradients(grads(batch, step))


for step, batch in enumerate(dataset):
    train_step(batch, tf.constant(step, tf.int64))
