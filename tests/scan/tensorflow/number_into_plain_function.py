import tensorflow as tf


def train_step(batch, step):
    optimizer.apply_gradients(grads(batch, step))


for step, batch in enumerate(dataset):
    train_step(batch, step)
