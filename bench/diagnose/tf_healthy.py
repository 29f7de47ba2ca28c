"""TensorFlow; a cached dataset of one shape, a step that is traced once."""
import tensorflow as tf
from settings import choose, until_time_is_up

WIDTH, FIT = choose.choice([512, 768]), choose.choice([False, True])
model = tf.keras.Sequential(
    [tf.keras.layers.Dense(WIDTH, "gelu"), tf.keras.layers.Dense(WIDTH, "gelu"), tf.keras.layers.Dense(80)])
optimizer = tf.keras.optimizers.AdamW()
mels = tf.random.normal((256, 200, 80))
data = tf.data.Dataset.from_tensor_slices(mels).shuffle(256).batch(16, drop_remainder=True).repeat().prefetch(2)
steps = until_time_is_up()
if FIT:
    class Stop(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if next(steps, None) is None:
                self.model.stop_training = True

    model.compile(optimizer, "mse")
    model.fit(data.map(lambda mel: (mel, mel)), epochs=1000, steps_per_epoch=10, callbacks=[Stop()], verbose=2)
else:
    @tf.function
    def train_step(mel):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(mel) - mel))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    for step, mel in zip(steps, data):
        loss = train_step(mel)
        if step % 20 == 0:
            print(step, float(loss))
