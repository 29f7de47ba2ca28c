import tensorflow as tf

run = tf.function(model)
for path in files:
    audio = run(load(path))
    write(path, audio.numpy())
