import tensorflow as tf

ds = tf.data.Dataset.from_tensor_slices(files).map(parse)
ds = ds.prefetch(100)  # expect: prefetch-before-batch=warning
ds = ds.batch(16)
