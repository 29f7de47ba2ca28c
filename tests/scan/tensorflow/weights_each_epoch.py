import tensorflow as tf

for epoch in range(5):
    for x, y in dataset:
        model.train_on_batch(x, y)
    model.save_weights(f"{epoch}.h5")
