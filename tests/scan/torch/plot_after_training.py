import matplotlib.pyplot as plt
import torch

for batch in loader:
    loss = model(batch)
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
plt.plot(losses)
plt.savefig("loss.png")
