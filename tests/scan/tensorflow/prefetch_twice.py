import tensorflow as tf

ds = tf.data.Dataset.from_tensor_slices(files).map(parse).prefetch(64).batch(16).prefetch(2)
