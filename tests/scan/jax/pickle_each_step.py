import pickle

import jax

update = jax.jit(step)
for batch in loader:
    params, loss = update(params, batch)
    with open("params.pkl", "wb") as file:
        pickle.dump(params, file)  # expect: checkpoint-every-step
