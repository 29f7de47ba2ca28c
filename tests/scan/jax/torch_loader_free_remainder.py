import jax
from torch.utils.data import DataLoader

from corpus import SpeechCorpus


@jax.jit
def train_step(state, batch):
    return state, loss_fn(state, batch)


loader = DataLoader(SpeechCorpus("d"), batch_size=16, num_workers=4, collate_fn=stack)  # expect: free-remainder
for step, batch in enumerate(loader):
    batch = {k: v for k, v in batch.items()}
    state, loss = train_step(state, batch)
