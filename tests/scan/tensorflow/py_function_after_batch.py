import tensorflow as tf

ds = tf.data.TFRecordDataset(files)
ds = ds.batch(64)
ds = ds.map(lambda b: tf.py_function(parse, [b], tf.float32))  # expect: tf-python-map=warning
ds = ds.prefetch(tf.data.AUTOTUNE)
