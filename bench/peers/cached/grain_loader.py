"""Grain: two reading threads, each making whole batches. Fastest with tcmalloc preloaded."""
import common  # before NumPy: it sets the thread counts
import grain


def batches(clips, order):
    samples = common.mapped(clips)
    data = grain.MapDataset.source(order.reshape(-1, common.BATCH).tolist())
    data = data.map(lambda batch: common.collate([samples[i] for i in batch]))
    return data.to_iter_dataset(grain.ReadOptions(num_threads=common.WORKERS, prefetch_buffer_size=2 * common.WORKERS))


common.run("Grain, tcmalloc", batches)
