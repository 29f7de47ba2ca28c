import jax

step = jax.jit(lambda x: print(x) or x * 2)  # expect: print-under-jit=hint
