import tensorflow as tf


def make(files):
    ds = tf.data.TFRecordDataset(files)
    ds = ds.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    ds = ds.padded_batch(16)
    return ds


model.fit(make(train_files).prefetch(tf.data.AUTOTUNE), epochs=10)
