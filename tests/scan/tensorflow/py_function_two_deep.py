import tensorflow as tf


def decode(path):
    return tf.py_function(func=read_wave, inp=[path], Tout=tf.float32)  # expect: tf-python-map


def prepare(path, label):
    return decode(path), label


def build(files, labels):
    ds = tf.data.Dataset.from_tensor_slices((files, labels))
    return ds.map(prepare).batch(8).prefetch(tf.data.AUTOTUNE)
