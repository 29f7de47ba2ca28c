import tensorflow as tf


@tf.function(input_signature=[tf.TensorSpec([None, 80], tf.float32)])
def train_step(x):
    optimizer.apply_gradients(grads(model, x))


for x in tf.data.Dataset.from_tensor_slices(x).batch(32).prefetch(2):
    train_step(x)
