import tensorflow as tf

BATCH = 32
ds = tf.data.Dataset.from_tensor_slices(x).batch(BATCH, drop_remainder=True).prefetch(2)
step = tf.function(train_step)
for x in ds:
    step(x)
