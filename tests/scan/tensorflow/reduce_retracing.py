import tensorflow as tf


@tf.function(reduce_retracing=True)
def train_step(x):
    optimizer.apply_gradients(grads(model, x))


for x in tf.data.Dataset.from_tensor_slices(x).batch(32).prefetch(2):
    train_step(x)
