import tensorflow as tf


@tf.function
def train_step(batch):
    optimizer.apply_gradients(grads(batch))
    return loss_of(batch)


for step, batch in enumerate(dataset):
    loss = train_step(batch)
    if not step % 100:
        print(step, loss.numpy())
