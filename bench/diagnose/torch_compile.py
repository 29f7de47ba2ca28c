"""PyTorch with torch.compile; every batch has its own length, so the step is compiled again and again."""
import torch
from settings import choose, until_time_is_up

WIDTH, LAYERS = choose.choice([64, 128]), choose.choice([2, 3, 4])
torch._dynamo.config.recompile_limit = 256  # "hit recompile_limit" said so
torch.manual_seed(0)
torch.set_num_threads(1)  # the device; the other cores are the host's
layers = [torch.nn.Linear(80, WIDTH), torch.nn.GELU()]
for _ in range(LAYERS):
    layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.LayerNorm(WIDTH), torch.nn.GELU()]
model = torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 80))
compiled = torch.compile(model, dynamic=False, backend=choose.choice(["aot_eager", "aot_eager", "inductor"]))
optimizer = torch.optim.Adam(model.parameters())
for step in until_time_is_up():
    mel = torch.randn(8, 100 + choose.randrange(400), 80)
    loss = torch.nn.functional.l1_loss(compiled(mel), mel)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
