import torch

نام = "سلام دنیا"
for دسته in بارگذار:
    loss = model(دسته.cuda())
    loss.backward()
    optimizer.step()
    print("زیان", loss.item())  # expect: host-sync-every-step
