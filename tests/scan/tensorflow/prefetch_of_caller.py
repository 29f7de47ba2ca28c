import tensorflow as tf


def batches(ds):
    return ds.prefetch(8).batch(16)
