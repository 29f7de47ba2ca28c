"""tf.data whose map fetches the arrays through tf.numpy_function."""
import common  # before NumPy: it sets the thread counts
import tensorflow as tf


def batches(clips, order):
    samples = common.mapped(clips)

    def sample(index):
        mel, text = tf.numpy_function(lambda i: samples[i], [index], [tf.float32, tf.int32])
        mel, text = tf.ensure_shape(mel, [None, common.BINS]), tf.ensure_shape(text, [None])
        return mel, text, tf.shape(mel)[0], tf.shape(text)[0]

    data = tf.data.Dataset.from_tensor_slices(order).map(sample, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
    data = data.padded_batch(common.BATCH, ([common.FRAMES, common.BINS], [common.TOKENS], [], []), drop_remainder=True)
    return data.prefetch(tf.data.AUTOTUNE).as_numpy_iterator()


common.run("tf.numpy_function", batches)
