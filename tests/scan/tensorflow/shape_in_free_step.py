import tensorflow as tf


@tf.function(input_signature=[tf.TensorSpec([None, None, 80], tf.float32)])
def step(mel):
    return tf.reshape(mel, [tf.shape(mel)[0], -1])
