import jax
import tensorflow as tf

train_step = jax.jit(step)
ds = tf.data.Dataset.from_tensor_slices(x)
ds = ds.batch(64, drop_remainder=True)  # expect: dataset-no-prefetch
for batch in ds.as_numpy_iterator():
    state, loss = train_step(state, batch)
