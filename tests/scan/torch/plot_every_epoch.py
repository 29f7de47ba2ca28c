import matplotlib.pyplot as plt
import torch

for epoch in range(100):
    for batch in loader:
        loss = model(batch)
        loss.backward()
        optimizer.step()
    plt.imshow(spectrogram)
    plt.savefig(f"{epoch}.png")
