import lightning.pytorch as pl
import torch.nn.functional as F


class Recogniser(pl.LightningModule):
    def training_step(self, batch, batch_idx):
        logits = self.encoder(batch["mel"])
        loss = F.cross_entropy(logits, batch["labels"])
        self.history.append(loss.item())  # expect: host-sync-every-step
        return loss

    def validation_step(self, batch, batch_idx):
        loss = F.cross_entropy(self.encoder(batch["mel"]), batch["labels"])
        self.losses.append(loss.item())
