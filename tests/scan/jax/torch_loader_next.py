import jax
from torch.utils.data import DataLoader

from corpus import SpeechCorpus

train_step = jax.jit(step)
loader = DataLoader(SpeechCorpus("d"), batch_size=16, num_workers=4)  # expect: free-remainder
it = iter(loader)
for i in range(10_000):
    batch = next(it)
    state, loss = train_step(state, batch)
