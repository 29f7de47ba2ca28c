"""SPDL: one task makes a whole batch, two at a time; its native WAV reader."""
import common  # before NumPy: it sets the thread counts
import numpy as np
import spdl.io
from spdl.pipeline import PipelineBuilder


def load(clip):
    with open(clip.wav, "rb") as file:
        audio = np.asarray(spdl.io.load_wav(file.read()))[:, 0]
    return common.mel(audio.astype(np.float32) * np.float32(1 / 32768)), common.tokens(clip.text)


def load_batch(clips):
    return common.collate([load(clip) for clip in clips])


def batches(clips, order):
    pipeline = (PipelineBuilder().add_source(clips[i] for i in order).aggregate(common.BATCH)
                .pipe(load_batch, concurrency=common.WORKERS, output_order="input").add_sink(2).build(num_threads=common.WORKERS))
    with pipeline.auto_stop():
        yield from pipeline


common.run("SPDL, SciPy mel", batches)
