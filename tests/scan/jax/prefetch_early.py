import jax
import tensorflow as tf

train_step = jax.jit(step)
ds = tf.data.Dataset.from_tensor_slices(x).prefetch(10)  # expect: prefetch-before-batch
ds = ds.batch(64, drop_remainder=True)
for batch in ds.as_numpy_iterator():
    state, loss = train_step(state, batch)
