import tensorflow as tf

ds = tf.data.Dataset.from_tensor_slices(x).batch(64).prefetch(2)


@tf.function
def train_step(batch):
    optimizer.apply_gradients(grads(batch))


@tf.function
def train_epoch(ds):
    for batch in ds:  # one graph for batches of any size
        train_step(batch)


train_epoch(ds)
