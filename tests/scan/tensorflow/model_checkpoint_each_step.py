import tensorflow as tf

callbacks = [
    tf.keras.callbacks.ModelCheckpoint("best.keras", save_freq=1),  # expect: checkpoint-every-step
    tf.keras.callbacks.ModelCheckpoint("epoch.keras", save_freq="epoch"),
]
