import matplotlib.pyplot as plt
import tensorflow as tf


class Show(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        plt.figure()  # expect: plot-in-loop
        plt.plot(self.losses)
        plt.savefig("loss.png")

    def on_epoch_end(self, epoch, logs=None):
        plt.savefig("epoch.png")
