import torch
from lightning.pytorch.callbacks import Callback


class Saver(Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        torch.save(module.state_dict(), "last.pt")  # expect: checkpoint-every-step

    def on_train_epoch_end(self, trainer, module):
        torch.save(module.state_dict(), "epoch.pt")
