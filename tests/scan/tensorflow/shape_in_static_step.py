import tensorflow as tf


@tf.function(input_signature=[tf.TensorSpec([16, 800, 80], tf.float32), tf.TensorSpec(shape=(16,), dtype=tf.int32)])
def step(mel, lengths):
    frames = tf.shape(mel)[1]  # expect: tf-shape-in-static-step=hint
    return tf.sequence_mask(lengths, frames)
