import tensorflow as tf

ds = tf.data.Dataset.from_tensor_slices(files).batch(16, drop_remainder=True)
ds = ds.apply(tf.data.experimental.prefetch_to_device("/gpu:0"))
for batch in ds:
    train_step(batch)
