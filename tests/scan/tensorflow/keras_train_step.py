import tensorflow as tf


class Model(tf.keras.Model):
    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=data, y_pred=self(data))
        self.optimizer.apply_gradients(zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables))
        return {"loss": loss}
