import jax


def main(state, loader):
    for epoch in range(100):
        state, loss = train_epoch(state, loader)
        print(epoch, float(loss))
