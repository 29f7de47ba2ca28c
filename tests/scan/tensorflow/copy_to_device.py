import tensorflow as tf

ds = tf.data.Dataset.range(1000).batch(16)
ds = ds.apply(tf.data.experimental.copy_to_device("/gpu:0")).prefetch(2)
