"""Trains a small model of the next mel frame in TensorFlow: the step is compiled once per shape.

python examples/python/tf_train.py data/LJSpeech-1.1
"""

import argparse
import time

import tensorflow as tf

import penstock

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("dataset")
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--epochs", type=int, default=2)
arguments = parser.parse_args()

feed = penstock.Feed(arguments.dataset, batch_size=arguments.batch_size, shapes=4, seed=7)
tf.keras.utils.set_random_seed(7)
dataset = feed.tf()
bins = dataset.element_spec["mel"].shape[-1]
model = tf.keras.Sequential(
    [tf.keras.Input((None, bins)), tf.keras.layers.Dense(256, activation="relu"), tf.keras.layers.Dense(bins)]
)
optimizer = tf.keras.optimizers.Adam(1e-3)
optimizer.build(model.trainable_variables)  # variables that are made in the first step would cost a trace


@tf.function  # sees each batch's own shape, so it is traced once for each of the four
def step(batch: dict[str, tf.Tensor]) -> tf.Tensor:
    mel = batch["mel"]
    with tf.GradientTape() as tape:
        error = tf.reduce_mean(tf.abs(model(mel[:, :-1]) - mel[:, 1:]), axis=-1)
        valid = tf.sequence_mask(batch["mel_lengths"] - 1, mel.shape[1] - 1, tf.float32)
        loss = tf.reduce_sum(error * valid) / tf.reduce_sum(valid)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


for epoch in range(arguments.epochs):
    began, waited, losses = time.perf_counter(), feed.stats()["wait_seconds"], []
    for batch in dataset:
        losses.append(step(batch))
    waited = (feed.stats()["wait_seconds"] - waited) / (time.perf_counter() - began)
    print(
        f"epoch {epoch}  loss {float(losses[0]):.3f} -> {float(losses[-1]):.3f}  "
        f"{len(losses)} steps  waited {waited:.1%} of the time  "
        f"{step.experimental_get_tracing_count()} traces for {len(feed.shapes)} shapes"
    )
