import tensorflow as tf

for step, (x, y) in enumerate(dataset):
    model.train_on_batch(x, y)
    model.save_weights("last.h5")  # expect: checkpoint-every-step
