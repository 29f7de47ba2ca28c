import tensorflow as tf

strategy = tf.distribute.MirroredStrategy()
ds = tf.data.Dataset.from_tensor_slices(x).batch(64)
ds = strategy.experimental_distribute_dataset(ds)  # has a prefetch of its own
step = tf.function(lambda batch: strategy.run(train_step, args=(batch,)))
for batch in ds:
    step(batch)
