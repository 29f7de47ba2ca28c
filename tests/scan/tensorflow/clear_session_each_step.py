import tensorflow as tf

for batch in dataset:
    train_step(batch)
    tf.keras.backend.clear_session()  # expect: cleanup-in-loop=critical
