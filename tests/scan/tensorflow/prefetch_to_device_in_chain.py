import tensorflow as tf
from tensorflow.data.experimental import prefetch_to_device

ds = (
    tf.data.TFRecordDataset(files)
    .batch(8)
    .apply(prefetch_to_device("/gpu:0", 2))  # expect: prefetch-to-device-not-last
    .repeat()
)
