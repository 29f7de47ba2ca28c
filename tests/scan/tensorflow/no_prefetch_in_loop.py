import tensorflow as tf

ds = tf.data.Dataset.from_tensor_slices(x).shuffle(1000).batch(32, drop_remainder=True)  # expect: dataset-no-prefetch=hint


@tf.function
def train_step(batch):
    with tf.GradientTape() as tape:
        loss = model(batch)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))


for batch in ds:
    train_step(batch)
