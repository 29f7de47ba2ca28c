from functools import partial

import jax


class Trainer:
    @partial(jax.jit, static_argnums=(0, 2))
    def train_step(self, batch, step):
        return self.model(batch, step)

    def run(self, loader):
        for step, batch in enumerate(loader):
            self.train_step(batch, step)  # expect: python-number-argument
