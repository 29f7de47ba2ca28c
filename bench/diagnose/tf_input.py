"""TensorFlow; tf.data over a Python generator or py_function that computes mels."""
import numpy as np
import tensorflow as tf
from settings import choose, clips, until_time_is_up

N_FFT, KIND, WIDTH = choose.choice([1024, 2048]), choose.choice(["generator", "py_function", "loop"]), choose.choice([64, 128])
bank = np.random.default_rng(0).random((N_FFT // 2 + 1, 80)).astype(np.float32)
paths = clips()


def mel_of(path):
    wave = np.load(path)
    frames = np.lib.stride_tricks.sliding_window_view(wave, N_FFT)[::256] * np.hanning(N_FFT)
    mel = np.log(np.abs(np.fft.rfft(frames)) @ bank + 1e-5)
    return np.resize(mel, (200, 80)).astype(np.float32)


def clip_mels():
    while True:
        for path in paths:
            yield mel_of(path)


def batches():
    if KIND == "loop":
        mels = clip_mels()
        while True:
            yield tf.constant(np.stack([next(mels) for _ in range(8)]))
    if KIND == "generator":
        data = tf.data.Dataset.from_generator(clip_mels, output_signature=tf.TensorSpec((200, 80), tf.float32))
    else:
        data = tf.data.Dataset.from_tensor_slices(paths).repeat()
        data = data.map(lambda path: tf.ensure_shape(tf.numpy_function(lambda p: mel_of(p.decode()), [path], tf.float32), (200, 80)))
    yield from data.batch(8).prefetch(2)


model = tf.keras.Sequential([tf.keras.layers.Dense(WIDTH, "relu"), tf.keras.layers.Dense(80)])
optimizer = tf.keras.optimizers.Adam()


@tf.function
def train_step(mel):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.abs(model(mel) - mel))
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss


for step, mel in zip(until_time_is_up(), batches()):
    loss = train_step(mel)
    if step % 10 == 0:
        print(step, float(loss))
