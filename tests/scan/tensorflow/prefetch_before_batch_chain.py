import tensorflow as tf

ds = (
    tf.data.TFRecordDataset(files)
    .map(parse, num_parallel_calls=4)
    .prefetch(tf.data.AUTOTUNE)  # expect: prefetch-before-batch
    .padded_batch(32)
)
for batch in ds:
    print(batch.shape)
