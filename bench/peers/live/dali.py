"""NVIDIA DALI on the CPU: everything native, from its file reader on; tokens come from a table by label, as views without a copy."""
import math

import common  # before NumPy: it sets the thread counts
import numpy as np
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali import math as dali_math


@pipeline_def(batch_size=common.BATCH, num_threads=common.WORKERS, device_id=None, exec_dynamic=True, prefetch_queue_depth=2)
def pipeline(files):
    encoded, label = fn.readers.file(files=files, labels=list(range(len(files))), dont_use_mmap=True, prefetch_queue_depth=2)
    audio, _ = fn.decoders.audio(encoded, dtype=types.FLOAT, downmix=True)
    magnitude = fn.spectrogram(audio, nfft=common.FFT, window_length=common.FFT, window_step=common.HOP, power=1, layout="tf",
                               center_windows=True, reflect_padding=True, window_fn=common.WINDOW.tolist())
    mel = fn.mel_filter_bank(magnitude, sample_rate=common.RATE, nfilter=common.BINS, freq_low=0.0, freq_high=common.TOP,
                             mel_formula="slaney", normalize=True)
    # to_decibels takes log10: with ln(10) as the multiplier that is the natural logarithm.
    mel = fn.to_decibels(mel, multiplier=math.log(10), reference=1.0, cutoff_db=math.log(common.FLOOR))
    frames = fn.cast(dali_math.min(mel.shape()[0], common.FRAMES), dtype=types.INT32)
    return fn.slice(mel, 0, common.FRAMES, axes=[0], out_of_bounds_policy="pad", fill_values=0), frames, label


def batches(clips, order):
    shuffled = [clips[i] for i in order[: len(clips)]]
    no_mel = np.empty((0, common.BINS), np.float32)
    _, codes, _, lengths = common.collate([(no_mel, common.tokens(clip.text)) for clip in shuffled])
    pipe = pipeline([clip.wav for clip in shuffled])
    pipe.build()
    while True:
        mel, frames, label = (np.asarray(output.as_tensor()) for output in pipe.run())
        row = label.reshape(-1)
        yield mel, codes[row], frames.reshape(-1), lengths[row]


common.run("DALI", batches)
