"""tf.data with TensorFlow's own operations: a file is read, its header skipped as values and the rest padded by decode_raw, so that
nothing is copied but by reading, decoding and batching."""
import common  # before NumPy: it sets the thread counts
import tensorflow as tf


def values(file, dtype, shape):
    """(the array padded to `shape`, its true length)"""
    data = tf.io.read_file(file)
    size = dtype.size * tf.TensorShape(shape).num_elements()
    padded = tf.io.decode_raw(data, dtype, fixed_length=common.HEADER + size)[common.HEADER // dtype.size :]
    return tf.reshape(padded, shape), (tf.strings.length(data) - common.HEADER) // (size // shape[0])


def batches(clips, order):
    mels, tokens = (tf.constant(files) for files in zip(*clips))

    def load(index):
        mel, frames = values(mels[index], tf.float32, [common.FRAMES, common.BINS])
        text, length = values(tokens[index], tf.int32, [common.TOKENS])
        return mel, text, frames, length

    data = tf.data.Dataset.from_tensor_slices(order).map(load, num_parallel_calls=2 * common.WORKERS, deterministic=False)
    return data.batch(common.BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE).as_numpy_iterator()


common.run("tf.data native", batches)
