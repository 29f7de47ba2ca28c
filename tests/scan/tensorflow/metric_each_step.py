import tensorflow as tf

mean = tf.keras.metrics.Mean()
for batch in dataset:
    with tf.GradientTape() as tape:
        loss = model(batch)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    mean.update_state(loss)
    print(mean.result().numpy())  # expect: host-sync-every-step
