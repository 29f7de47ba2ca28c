import librosa
import tensorflow as tf


def features(path):
    audio, _ = librosa.load(path.decode(), sr=22050)  # expect: per-sample-audio
    return librosa.feature.melspectrogram(y=audio).T  # expect: per-sample-audio


def load(path):
    return tf.numpy_function(features, [path], tf.float32)  # expect: tf-python-map


ds = tf.data.Dataset.list_files("*.wav").map(load).padded_batch(8).prefetch(tf.data.AUTOTUNE)
