import tensorflow.compat.v1 as tf

ds = tf.data.Dataset.from_tensor_slices(files)
ds = ds.map(lambda p: tf.py_func(read, [p], tf.float32))  # expect: tf-python-map
ds = ds.batch(2).prefetch(1)
