import tensorflow as tf


class Pipeline:
    def _load(self, path):
        return tf.numpy_function(self.read, [path], tf.float32)  # expect: tf-python-map

    def build(self, files):
        return tf.data.Dataset.from_tensor_slices(files).map(self._load).batch(4).prefetch(1)
