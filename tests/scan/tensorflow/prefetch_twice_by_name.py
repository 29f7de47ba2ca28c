import tensorflow as tf


def pipeline(files, training):
    ds = tf.data.Dataset.from_tensor_slices(files).map(parse)
    ds = ds.prefetch(64)
    if training:
        ds = ds.shuffle(1000)
    ds = ds.batch(16)
    return ds.prefetch(tf.data.AUTOTUNE)
