from tensorflow.keras.backend import clear_session

for x, y in batches:
    clear_session()  # expect: cleanup-in-loop
    model.train_on_batch(x, y)
