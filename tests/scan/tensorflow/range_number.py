import tensorflow as tf

power = tf.function(lambda x, n: x**n)
for n in range(200):
    total += power(x, n)  # expect: python-number-argument
