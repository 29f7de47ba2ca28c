import jax
import matplotlib.pyplot as plt

update = jax.jit(step)
for batch in loader:
    params, loss = update(params, batch)
    plt.imshow(mel)  # expect: plot-in-loop
    plt.show()
