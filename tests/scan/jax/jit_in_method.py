import jax


class Trainer:
    def __init__(self, step):
        self.step = jax.jit(step)

    def train(self, loader):
        for batch in loader:
            self.state, loss = self.step(self.state, batch)
            if self.count % 100 == 0:
                self.log(float(loss))
