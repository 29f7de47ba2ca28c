import soundfile
import tensorflow as tf

for step, batch in enumerate(dataset):
    audio = train_step(batch)
    if step % 5000 == 0:
        soundfile.write(f"{step}.wav", audio.numpy(), 22050)
