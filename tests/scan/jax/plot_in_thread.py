import jax
import matplotlib.pyplot as plt

update = jax.jit(step)


def draw(mel):
    plt.imshow(mel)
    plt.savefig("mel.png")


for i, batch in enumerate(loader):
    params, loss = update(params, batch)
    if i % 1000 == 0:
        pool.submit(draw, mel)
