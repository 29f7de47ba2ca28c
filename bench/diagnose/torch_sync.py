"""PyTorch; the loop asks the device for single numbers: a masked loss and an accuracy, utterance by utterance, frame by frame."""
import torch
from settings import choose, until_time_is_up

ROWS, FRAMES, WIDTH = choose.choice([16, 32]), choose.choice([120, 200]), choose.choice([32, 64])
KIND = choose.choice(["frames", "rows"])
torch.manual_seed(0)
torch.set_num_threads(1)  # the device; the other cores are the host's
model = torch.nn.Sequential(torch.nn.Linear(80, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 40))
optimizer = torch.optim.Adam(model.parameters())
mels = torch.randn(64, ROWS, FRAMES, 80)
labels = torch.randint(0, 40, (64, ROWS, FRAMES))
lengths = torch.randint(FRAMES // 2, FRAMES, (64, ROWS))
for step in until_time_is_up():
    mel, label, length = mels[step % 64], labels[step % 64], lengths[step % 64]
    logits = model(mel)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), label.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    correct = total = 0
    guesses = logits.argmax(-1)
    for row in range(ROWS):
        if KIND == "rows":
            for frame in range(0, int(length[row].item()), 4):
                correct += int((guesses[row, frame] == label[row, frame]).item())
                total += 1
        else:
            for frame in range(length[row].item()):
                if guesses[row, frame].item() == label[row, frame].item():
                    correct += 1
                total += 1
    if step % 10 == 0:
        print(step, loss.item(), correct / total)
