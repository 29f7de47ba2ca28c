import tensorflow as tf

ds = tf.data.Dataset.from_tensor_slices(files).batch(16)
ds = ds.apply(tf.data.experimental.prefetch_to_device("/gpu:0"))  # expect: prefetch-to-device-not-last=critical
ds = ds.map(augment)
