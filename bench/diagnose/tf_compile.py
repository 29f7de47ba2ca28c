"""TensorFlow; tf.function meets a new shape, or a new Python number, with nearly every batch, and traces again."""
import tensorflow as tf
from settings import choose, until_time_is_up

WIDTH, LAYERS, KIND = choose.choice([64, 128]), choose.choice([2, 4]), choose.choice(["shape", "number"])
model = tf.keras.Sequential([tf.keras.layers.Dense(WIDTH, "gelu") for _ in range(LAYERS)] + [tf.keras.layers.Dense(80)])
model.build((None, None, 80))
optimizer = tf.keras.optimizers.Adam()
optimizer.build(model.trainable_variables)


@tf.function
def train_step(mel, weight):
    with tf.GradientTape() as tape:
        loss = weight * tf.reduce_mean(tf.abs(model(mel) - mel))
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss


for step in until_time_is_up():
    mel = tf.random.normal((8, 100 + choose.randrange(400) if KIND == "shape" else 200, 80))
    loss = train_step(mel, 1.0 if KIND == "shape" else 0.99**step)
    if step % 10 == 0:
        print(step, float(loss))
