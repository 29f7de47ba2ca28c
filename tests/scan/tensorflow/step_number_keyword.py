import tensorflow as tf


class Trainer:
    @tf.function
    def train_step(self, batch, step):
        return self.update(batch, step)

    def fit(self, dataset):
        step = 0
        for batch in dataset:
            self.train_step(batch, step=step + 1)  # expect: python-number-argument
            step += 1
