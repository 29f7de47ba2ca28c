import tensorflow as tf

ds = tf.data.Dataset.from_tensor_slices(mels).shuffle(100)
ds = ds.padded_batch(16, drop_remainder=False)  # expect: free-remainder
ds = ds.prefetch(tf.data.AUTOTUNE)


class Trainer:
    @tf.function(jit_compile=True)
    def train_step(self, mel):
        return self.model(mel)

    def run(self):
        for step, mel in enumerate(ds):
            self.train_step(mel)
