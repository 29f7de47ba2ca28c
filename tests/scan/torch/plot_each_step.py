import matplotlib.pyplot as plt
import torch

for batch in loader:
    loss = model(batch)
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
    plt.plot(losses)  # expect: plot-in-loop=critical
    plt.savefig("loss.png")
