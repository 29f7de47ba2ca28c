"""mlx-data: its own reading, padding, batching and threads. It has no mel of this definition, so the mel is SciPy's. Fastest with
tcmalloc preloaded."""
import common  # before NumPy: it sets the thread counts
import mlx.data
import numpy as np


def batches(clips, order):
    rows = [{"mel": clip.wav.encode(), "tokens": common.tokens(clip.text)} for clip in clips]
    stream = (mlx.data.buffer_from_vector(rows).perm(order.tolist()).to_stream()
              .load_audio("mel").squeeze("mel").key_transform("mel", common.mel)
              .slice("mel", 0, 0, common.FRAMES).slice("tokens", 0, 0, common.TOKENS)
              .shape("mel", "frames", 0).shape("tokens", "lengths", 0)
              .pad_to_size("mel", 0, common.FRAMES, 0.0).pad_to_size("tokens", 0, common.TOKENS, 0)
              .prefetch(2 * common.BATCH, common.WORKERS).batch(common.BATCH).prefetch(2, 1))
    for batch in stream:
        yield tuple(np.asarray(batch[key]) for key in ("mel", "tokens", "frames", "lengths"))


common.run("mlx-data, SciPy mel, tcmalloc", batches)
