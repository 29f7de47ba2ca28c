import jax
import tensorflow as tf

ds = tf.data.Dataset.list_files("*.npy")
ds = ds.map(lambda p: tf.numpy_function(read_npy, [p], tf.float32))  # expect: tf-python-map
ds = ds.batch(64, drop_remainder=True).prefetch(2)
