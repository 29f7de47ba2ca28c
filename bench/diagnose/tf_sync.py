"""TensorFlow; the loop fetches single numbers from the device: lengths, frames, one metric per utterance."""
import tensorflow as tf
from settings import choose, until_time_is_up

ROWS, FRAMES, WIDTH = choose.choice([16, 32]), choose.choice([50, 100]), choose.choice([32, 64])
model = tf.keras.Sequential([tf.keras.layers.Dense(WIDTH, "relu"), tf.keras.layers.Dense(80)])
optimizer = tf.keras.optimizers.Adam()
mels = tf.random.normal((16, ROWS, FRAMES, 80))
lengths = tf.random.uniform((16, ROWS), FRAMES // 2, FRAMES, tf.int32)


@tf.function
def train_step(mel):
    with tf.GradientTape() as tape:
        guess = model(mel)
        loss = tf.reduce_mean(tf.abs(guess - mel))
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss, guess


for step in until_time_is_up():
    mel, length = mels[step % 16], lengths[step % 16]
    loss, guess = train_step(mel)
    error = 0.0
    for row in range(ROWS):
        for frame in range(0, int(length[row].numpy()), 4):
            error += abs(guess[row, frame, 0].numpy() - mel[row, frame, 0].numpy())
    if step % 10 == 0:
        print(step, loss.numpy(), error)
