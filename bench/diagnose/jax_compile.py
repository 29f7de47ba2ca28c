"""JAX; every batch has its own length, so jit compiles nearly every step."""
from jax_model import made, train_step
from settings import choose, numbers, until_time_is_up

parameters = made(choose.choice([64, 128]), choose.choice([2, 4, 6]))
for step in until_time_is_up():
    mel = numbers.standard_normal((8, 100 + choose.randrange(1000), 80)).astype("float32")
    parameters, loss = train_step(parameters, mel)
    if step % 20 == 0:
        print(step, float(loss))
