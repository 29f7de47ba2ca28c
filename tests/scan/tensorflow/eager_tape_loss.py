import tensorflow as tf

for x, y in dataset:
    with tf.GradientTape() as tape:
        loss_value = loss_fn(y, model(x, training=True))
    grads = tape.gradient(loss_value, model.trainable_weights)
    optimizer.apply_gradients(zip(grads, model.trainable_weights))
    history.append(float(loss_value))  # expect: host-sync-every-step
