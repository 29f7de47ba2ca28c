import tensorflow as tf


def main():
    print("devices", tf.config.list_physical_devices())
    tf.print(tf.reduce_sum(tf.ones([3])))
