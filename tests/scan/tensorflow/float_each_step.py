import tensorflow as tf


@tf.function
def train_step(batch):
    optimizer.apply_gradients(grads(batch))
    return loss_of(batch)


def train(dataset):
    for step, batch in enumerate(dataset):
        loss = train_step(batch)
        bar.update(step, values=[("loss", float(loss))])  # expect: host-sync-every-step
