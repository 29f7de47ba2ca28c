import tensorflow as tf


@tf.function(input_signature=[tf.TensorSpec([16, 80]), tf.TensorSpec([], tf.int64)])
def train_step(batch, step):
    optimizer.apply_gradients(grads(batch, step))


for step, batch in enumerate(dataset):
    train_step(batch, step)
