import tensorflow as tf


@tf.function
def train_step(x):
    with tf.GradientTape() as tape:
        loss = model(x)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss


ds = tf.data.Dataset.from_tensor_slices(x).batch(32).prefetch(2)  # expect: free-remainder=warning
for x in ds:
    train_step(x)
