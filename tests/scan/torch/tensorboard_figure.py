import torch
from torch.utils.tensorboard import SummaryWriter

writer = SummaryWriter()
for step, batch in enumerate(loader):
    loss = model(batch)
    loss.backward()
    optimizer.step()
    writer.add_scalar("loss", loss, step)
    writer.add_audio("sample", vocoder(mel), step)  # expect: plot-in-loop
