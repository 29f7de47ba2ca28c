import tensorflow as tf


def make(files):
    ds = tf.data.TFRecordDataset(files)
    ds = ds.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    ds = ds.shuffle(4096)
    ds = ds.padded_batch(16)  # expect: dataset-no-prefetch
    return ds


model.fit(make(train_files), epochs=10)
