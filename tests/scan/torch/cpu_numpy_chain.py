import torch


def run(model, train_loader, optimizer, criterion, device):
    for images, labels in train_loader:
        outputs = model(images.to(device))
        loss = criterion(outputs, labels.to(device))
        loss.backward()
        optimizer.step()
        predicted = outputs.argmax(dim=1).detach().cpu().numpy()  # expect: host-sync-every-step
        scores.update(predicted, labels)
