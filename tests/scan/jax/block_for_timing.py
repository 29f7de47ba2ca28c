import time

import jax

step = jax.jit(f)
for _ in range(10):
    start = time.perf_counter()
    step(x).block_until_ready()
    print(time.perf_counter() - start)
