import tensorflow as tf

for fold in range(5):
    tf.keras.backend.clear_session()
    model = build()
    model.fit(x[fold], y[fold], epochs=10)
