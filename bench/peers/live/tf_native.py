"""tf.data with TensorFlow's own operations; the mel matrix is Slaney's as a constant, since tf.signal only makes HTK's."""
import common  # before NumPy: it sets the thread counts
import tensorflow as tf


def batches(clips, order):
    filters, codes = tf.constant(common.FILTERS), tf.constant(common.CODES)
    wavs, texts = tf.constant([clip.wav for clip in clips]), tf.constant([clip.text.encode("latin-1", "replace") for clip in clips])

    def load(index):
        audio = tf.audio.decode_wav(tf.io.read_file(wavs[index]), desired_channels=1)[0][:, 0]
        audio = tf.pad(audio, [[common.FFT // 2, common.FFT // 2]], mode="REFLECT")
        magnitude = tf.abs(tf.signal.stft(audio, common.FFT, common.HOP, common.FFT))
        mel = tf.math.log(tf.maximum(tf.matmul(magnitude, filters), common.FLOOR))[: common.FRAMES]
        text = tf.gather(codes, tf.cast(tf.io.decode_raw(texts[index], tf.uint8), tf.int32))[: common.TOKENS]
        return mel, text, tf.shape(mel)[0], tf.shape(text)[0]

    data = tf.data.Dataset.from_tensor_slices(order).map(load, num_parallel_calls=tf.data.AUTOTUNE)
    data = data.padded_batch(common.BATCH, ([common.FRAMES, common.BINS], [common.TOKENS], [], []), drop_remainder=True)
    return data.prefetch(tf.data.AUTOTUNE).as_numpy_iterator()


common.run("tf.data native", batches)
