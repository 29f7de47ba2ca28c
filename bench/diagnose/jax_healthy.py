"""JAX; batches of one shape that are ready, a step with something to do, the loss now and then."""
import jax.numpy as jnp
from jax_model import made, train_step
from settings import choose, numbers, until_time_is_up

parameters = made(choose.choice([512, 768]), choose.choice([2, 3]))
mels = [jnp.asarray(numbers.standard_normal((16, 200, 80)), jnp.float32) for _ in range(16)]
every = choose.choice([10, 50])
for step in until_time_is_up():
    parameters, loss = train_step(parameters, mels[step % 16])
    if step % every == 0:
        print(step, float(loss))
