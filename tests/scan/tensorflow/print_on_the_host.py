import tensorflow as tf


@tf.function
def train_step(batch):
    def show(x):
        print(x)
        return x

    return tf.py_function(show, [model(batch)], tf.float32)
