import torch


def run(policy, env, optimizer, device):
    state = env.reset()
    for _ in range(100_000):
        action = policy(state.to(device)).argmax()
        state, reward, done, _ = env.step(action.item())
        loss = -reward * torch.log(action)
        loss.backward()
        optimizer.step()
