import tensorflow as tf

ds = tf.data.Dataset.from_tensor_slices(x).repeat().batch(32).prefetch(2)
train_step = tf.function(step)
for x in ds.take(10000):
    train_step(x)
