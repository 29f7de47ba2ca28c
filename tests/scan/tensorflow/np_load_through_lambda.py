import numpy as np
import tensorflow as tf


def read(path):
    return np.load(path.decode())  # expect: np-load-copy


ds = tf.data.Dataset.list_files("*.npy").map(
    lambda p: tf.numpy_function(read, [p], tf.float32),  # expect: tf-python-map
    num_parallel_calls=8,
)
ds = ds.padded_batch(8).prefetch(4)
