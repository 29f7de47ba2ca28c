import numpy as np
import tensorflow as tf


def load(path):
    mel = tf.numpy_function(np.load, [path], tf.float32)  # expect: tf-python-map
    mel.set_shape([None, 80])
    return mel


ds = tf.data.Dataset.list_files("mels/*.npy").map(load, num_parallel_calls=tf.data.AUTOTUNE).padded_batch(16).prefetch(2)
