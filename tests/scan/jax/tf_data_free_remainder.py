import jax
import tensorflow as tf

step = jax.jit(train_step)
ds = tf.data.TFRecordDataset(files).map(parse).batch(32).prefetch(tf.data.AUTOTUNE)  # expect: free-remainder
for batch in ds.as_numpy_iterator():
    state, loss = step(state, batch)
