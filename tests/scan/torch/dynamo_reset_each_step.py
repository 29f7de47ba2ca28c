import torch

for x in loader:
    torch._dynamo.reset()  # expect: cleanup-in-loop
    loss = model(x.cuda())
    loss.backward()
    optimizer.step()
