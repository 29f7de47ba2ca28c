import tensorflow as tf

model = tf.keras.Sequential([tf.keras.layers.Dense(10)])
model.compile(optimizer="adam", loss="mse")
model.fit(x_train, y_train, batch_size=32, epochs=5)
