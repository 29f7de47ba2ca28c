"""JAX; after every step single numbers are fetched: the norm of every layer, or the error of every utterance."""
import jax
import jax.numpy as jnp
from jax_model import forward, made, train_step
from settings import choose, numbers, until_time_is_up

WIDTH, ROWS, KIND = choose.choice([16, 32]), choose.choice([32, 48]), choose.choice(["norms", "rows"])
parameters = made(WIDTH, 10)
errors_of = jax.jit(lambda parameters, mel: jnp.abs(forward(parameters, mel) - mel).mean((1, 2)))
mels = jnp.asarray(numbers.standard_normal((16, ROWS, 12, 80)), jnp.float32)
for step in until_time_is_up():
    mel = mels[step % 16]
    parameters, loss = train_step(parameters, mel)
    history = [float(loss)]
    if KIND == "norms":
        for weight, bias in parameters:
            history.append(float(jnp.linalg.norm(weight)))
            history.append(float(jnp.abs(bias).max()))
    else:
        errors = errors_of(parameters, mel)
        for row in range(ROWS):
            history.append(float(errors[row]))
    if step % 20 == 0:
        print(step, history[0], sum(history))
