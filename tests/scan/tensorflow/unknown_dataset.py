import tensorflow as tf

from corpus import make_dataset

ds = make_dataset("train")
model.fit(ds.batch(16), epochs=3)
