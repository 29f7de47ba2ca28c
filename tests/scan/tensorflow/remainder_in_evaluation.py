import tensorflow as tf


@tf.function
def predict_step(x):
    return model(x, training=False)


def evaluate(files):
    for x in tf.data.TFRecordDataset(files).batch(32).prefetch(2):
        metric.update_state(predict_step(x))
