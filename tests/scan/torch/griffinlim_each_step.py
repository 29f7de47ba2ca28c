import librosa
import torch

for step, mel in enumerate(loader):
    loss = model(mel)
    loss.backward()
    optimizer.step()
    wave = librosa.griffinlim(magnitudes)  # expect: plot-in-loop
