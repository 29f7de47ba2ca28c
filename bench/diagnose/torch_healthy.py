"""PyTorch; the batches are ready, the model has something to do, and the loss is looked at now and then."""
import torch
from settings import choose, until_time_is_up
from torch.utils.data import DataLoader, TensorDataset

WIDTH, WORKERS, COMPILED = choose.choice([512, 768]), choose.choice([0, 1]), choose.choice([False, False, True])
torch.manual_seed(0)
torch.set_num_threads(1)  # the device; the other cores are the host's
model = torch.nn.Sequential(
    torch.nn.Linear(80, WIDTH), torch.nn.GELU(), torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(), torch.nn.Linear(WIDTH, 80))
step_model = torch.compile(model, backend="aot_eager") if COMPILED else model
optimizer = torch.optim.AdamW(model.parameters())
mels = TensorDataset(torch.randn(256, 200, 80))
steps = until_time_is_up()
losses, done = 0.0, False
while not done:
    for (mel,) in DataLoader(mels, batch_size=16, shuffle=True, num_workers=WORKERS, drop_last=True):
        step = next(steps, None)
        if step is None:
            done = True
            break
        loss = torch.nn.functional.mse_loss(step_model(mel), mel)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses += loss.detach()
        if step % 20 == 19:
            print(step, losses.item() / 20)
            losses = 0.0
