import tensorflow as tf


def load(path):
    audio, rate = tf.audio.decode_wav(tf.io.read_file(path), desired_channels=1)
    return tf.abs(tf.signal.stft(tf.squeeze(audio, -1), 1024, 256))


ds = tf.data.Dataset.list_files("wavs/*.wav").map(load, num_parallel_calls=tf.data.AUTOTUNE).padded_batch(16).prefetch(2)
