import tensorflow as tf


@tf.function
def train_step(batch):
    with tf.GradientTape() as tape:
        loss = model(batch)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss


for batch in dataset:
    loss = train_step(batch)
    losses.append(loss.numpy())  # expect: host-sync-every-step
