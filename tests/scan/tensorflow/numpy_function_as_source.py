import tensorflow as tf


def batches(loader):
    it = iter(loader)
    return tf.data.Dataset.range(len(loader)).map(lambda _: tf.numpy_function(lambda: next(it), [], tf.float32)).prefetch(2)
