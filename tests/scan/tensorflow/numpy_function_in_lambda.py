import tensorflow as tf

paths = tf.data.Dataset.from_tensor_slices(files)
ds = paths.map(lambda p: tf.numpy_function(read, [p], tf.float32))  # expect: tf-python-map=critical
ds = ds.batch(16).prefetch(tf.data.AUTOTUNE)
