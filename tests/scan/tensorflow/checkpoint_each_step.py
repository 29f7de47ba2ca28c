import tensorflow as tf

checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
for batch in dataset:
    train_step(batch)
    checkpoint.save("runs/ckpt")  # expect: checkpoint-every-step
