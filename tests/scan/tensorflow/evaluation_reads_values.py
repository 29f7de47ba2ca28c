import tensorflow as tf


@tf.function
def predict(batch):
    return model(batch)


def evaluate(dataset):
    results = []
    for batch in dataset:
        results.append(predict(batch).numpy())
    return results
