import tensorflow as tf

checkpoint = tf.train.Checkpoint(model=model)
manager = tf.train.CheckpointManager(checkpoint, "runs", max_to_keep=3)
for batch in dataset:
    train_step(batch)
    manager.save()  # expect: checkpoint-every-step
