import jax

for seed in range(5):
    jax.clear_caches()
    run(seed)
