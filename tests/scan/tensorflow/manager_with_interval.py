import tensorflow as tf

checkpoint = tf.train.Checkpoint(model=model, step=step)
manager = tf.train.CheckpointManager(checkpoint, "runs", max_to_keep=3, step_counter=step, checkpoint_interval=1000)
for batch in dataset:
    train_step(batch)
    manager.save()
