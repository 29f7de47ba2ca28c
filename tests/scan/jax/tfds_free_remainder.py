import jax
import tensorflow_datasets as tfds


@jax.jit
def train_step(state, batch):
    return state, loss_fn(state, batch)


ds = tfds.load("ljspeech", split="train").shuffle(1024)
ds = ds.padded_batch(16)  # expect: free-remainder
for batch in tfds.as_numpy(ds.prefetch(2)):
    state, loss = train_step(state, batch)
