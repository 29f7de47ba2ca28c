import soundfile
import tensorflow as tf

for step, batch in enumerate(dataset):
    audio = train_step(batch)
    soundfile.write("sample.wav", last_sample, 22050)  # expect: plot-in-loop
