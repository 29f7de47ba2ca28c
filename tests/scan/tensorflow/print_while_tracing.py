import tensorflow as tf


@tf.function
def train_step(batch):
    print("tracing with", batch)
    return model(batch)
