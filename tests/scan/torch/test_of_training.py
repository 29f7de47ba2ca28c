import torch


def test_loss_goes_down(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
