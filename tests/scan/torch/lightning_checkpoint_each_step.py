from lightning.pytorch.callbacks import ModelCheckpoint

often = ModelCheckpoint(dirpath="runs", every_n_train_steps=1)  # expect: checkpoint-every-step
rarely = ModelCheckpoint(dirpath="runs", every_n_train_steps=1000)
