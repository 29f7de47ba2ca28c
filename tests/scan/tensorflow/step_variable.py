import tensorflow as tf

step = tf.Variable(0, dtype=tf.int64)


@tf.function
def train_step(batch, step):
    step.assign_add(1)
    optimizer.apply_gradients(grads(batch, step))


for batch in dataset:
    train_step(batch, step)
