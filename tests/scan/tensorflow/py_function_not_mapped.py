import tensorflow as tf


@tf.function
def metric(labels, predictions):
    return tf.py_function(word_error_rate, [labels, predictions], tf.float32)
