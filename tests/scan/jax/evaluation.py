import jax


@jax.jit
def eval_step(params, batch):
    return loss_fn(params, batch)


def evaluate(params, loader):
    return sum(float(eval_step(params, batch)) for batch in loader)
