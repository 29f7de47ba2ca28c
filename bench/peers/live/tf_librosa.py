"""tf.data whose map calls librosa through tf.numpy_function; one BLAS thread, which is faster than the default."""
import common  # before NumPy: it sets the thread counts
import librosa
import numpy as np
import tensorflow as tf


def batches(clips, order):
    def load(index):
        clip = clips[index]
        audio, _ = librosa.load(clip.wav, sr=common.RATE)
        return np.ascontiguousarray(common.mel_librosa(audio)), common.tokens(clip.text)

    def sample(index):
        mel, text = tf.numpy_function(load, [index], [tf.float32, tf.int32])
        mel, text = tf.ensure_shape(mel, [None, common.BINS])[: common.FRAMES], tf.ensure_shape(text, [None])[: common.TOKENS]
        return mel, text, tf.shape(mel)[0], tf.shape(text)[0]

    data = tf.data.Dataset.from_tensor_slices(order).map(sample, num_parallel_calls=tf.data.AUTOTUNE)
    data = data.padded_batch(common.BATCH, ([common.FRAMES, common.BINS], [common.TOKENS], [], []), drop_remainder=True)
    return data.prefetch(tf.data.AUTOTUNE).as_numpy_iterator()


common.run("tf.numpy_function + librosa", batches)
