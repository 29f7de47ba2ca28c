import lightning as L
import torch.nn.functional as F


class Recogniser(L.LightningModule):
    def training_step(self, batch, batch_idx):
        loss = F.cross_entropy(self.encoder(batch["mel"]), batch["labels"])
        self.log("loss", loss)
        return loss
