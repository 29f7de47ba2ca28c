import jax
import numpy as np

predict = jax.jit(model.apply)
for name, mel in clips:
    audio = predict(params, mel)
    save(name, np.asarray(audio))
