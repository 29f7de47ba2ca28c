#!/usr/bin/env python3
"""Can the trainer learn eight sentences by heart, and `penstock say` speak them?

    bench/train/overfit.py DIR [--penstock build/penstock] [--keep]

Makes DIR/data unless it is there (eight clips under 3 s of `penstock synth`), trains nano on them from the beginning into DIR/run
(--keep: takes the run that is there), says every text without a reference, and compares what was said with all eight targets: by DTW over
the log-mels, by length, and by what pocketsphinx hears when it may choose among the eight sentences. The last line is one JSON object."""
import argparse
import json
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import time

import librosa
import numpy as np
import pocketsphinx
import soundfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SENTENCES, LONGEST = 8, 3.0
SPOKEN = ("--clips", 120, "--seed", 0)  # eight of them are short enough
TRAINING = ("--split", "all", "--batch-size", SENTENCES, "--shapes", 1, "--model-size", "nano", "--steps", 1200,
            "--warmup-steps", 100, "--val-every", 0)
HEARD_AT = 16_000  # Hz, what pocketsphinx's model was trained with


def run(program, *words):
    done = subprocess.run([program, *map(str, words)], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"penstock {words[0]}: exit code {done.returncode}")
    return done.stdout


def prepare(program, folder):
    """DIR/data with the first short clips of a spoken dataset, as [(id, text)]."""
    data, spoken = folder / "data", folder / "spoken"
    if not (data / "metadata.csv").exists():
        shutil.rmtree(spoken, ignore_errors=True)
        run(program, "synth", spoken, *SPOKEN)
        lines = (spoken / "metadata.csv").read_text().splitlines()
        short = [line for line in lines if soundfile.info(spoken / f"wavs/{line.split('|')[0]}.wav").duration < LONGEST]
        (data / "wavs").mkdir(parents=True, exist_ok=True)
        for line in short[:SENTENCES]:
            shutil.copy(spoken / f"wavs/{line.split('|')[0]}.wav", data / "wavs")
        (data / "metadata.csv").write_text("".join(f"{line}\n" for line in short[:SENTENCES]))
    clips = [line.split("|") for line in (data / "metadata.csv").read_text().splitlines()]
    return [(clip[0], clip[-1]) for clip in clips]


def distance(a, b):
    """Of two log-mels ([frames, bins]): the mean Euclidean distance of their frames along the best path."""
    cost, path = librosa.sequence.dtw(a.T, b.T)
    return cost[-1, -1] / len(path)


def words(text):
    return re.findall(r"[a-z']+", text.lower())


class Listener:
    """pocketsphinx, which may hear one of these texts whole, or nothing."""

    def __init__(self, texts):
        choices = " | ".join(" ".join(words(text)) for text in texts)
        # Beams that prune nothing of so small a grammar: with the default ones some originals are not heard to their end.
        self.decoder = pocketsphinx.Decoder(lm=None, beam=1e-200, wbeam=1e-200, pbeam=1e-200, bestpath=False, loglevel="FATAL")
        self.decoder.add_jsgf_string("sentences", f"#JSGF V1.0; grammar sentences; public <sentence> = {choices};")
        self.decoder.activate_search("sentences")
        self.texts = {tuple(words(text)): place for place, text in enumerate(texts)}

    def __call__(self, audio, rate):
        """The place of the text that was heard, or None."""
        audio = librosa.resample(audio, orig_sr=rate, target_sr=HEARD_AT)
        self.decoder.start_utt()
        self.decoder.process_raw((np.clip(audio, -1, 1) * 32767).astype("<i2").tobytes(), full_utt=True)
        self.decoder.end_utt()
        heard = self.decoder.hyp()
        return self.texts.get(tuple(heard.hypstr.split())) if heard else None

    def file(self, path):
        return self(*soundfile.read(path, dtype="float32"))


def griffin_lim(mel, rate):
    """What is left to hear of a true mel (hifigan), by librosa: the ceiling for what is said."""
    filters = librosa.filters.mel(sr=rate, n_fft=1024, n_mels=mel.shape[1], fmin=0, fmax=8000)
    return librosa.griffinlim(np.maximum(0, np.linalg.pinv(filters) @ np.exp(mel.T)), n_iter=60, hop_length=256)


def train(program, folder):
    shutil.rmtree(folder / "run", ignore_errors=True)
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    result = json.loads(run(program, "train", folder / "data", "--run", folder / "run", *TRAINING, "--json"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"seconds": time.perf_counter() - begin, "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            "steps": result["step"], "loss": result["loss"]}


def compare(place, said, targets):
    """What was said for the text in this place, with all targets."""
    distances = [distance(said, target) for target in targets]
    own = distances.pop(place)
    return {"own": own, "nearest": min(distances), "ratio": own / min(distances), "length": len(said) / len(targets[place])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR", type=pathlib.Path)
    parser.add_argument("--penstock", type=pathlib.Path, default=ROOT / "build/penstock")
    parser.add_argument("--keep", action="store_true", help="speak with DIR/run as it is")
    a = parser.parse_args()
    program, folder = a.penstock.resolve(), a.folder
    clips = prepare(program, folder)
    training = {} if a.keep else train(program, folder)
    run(program, "cache", "export", folder / "data", "--npy", folder / "npy", "--split", "all")
    targets = [np.load(folder / f"npy/mels/{name}.npy") for name, _ in clips]
    listener = Listener([text for _, text in clips])
    (folder / "said").mkdir(exist_ok=True)

    sentences = []
    for place, (name, text) in enumerate(clips):
        original, wav, mel = folder / f"data/wavs/{name}.wav", folder / f"said/{name}.wav", folder / f"said/{name}.npy"
        run(program, "say", folder / "run", text, "-o", wav, "--save-mel", mel, "--most-seconds", 2 * LONGEST)
        rate = soundfile.info(original).samplerate
        heard = {"said": listener.file(wav), "original": listener.file(original), "ceiling": listener(griffin_lim(targets[place], rate), rate)}
        sentences.append({"text": text, **compare(place, np.load(mel), targets), **{f"heard_{of}": heard[of] == place for of in heard}})
        print("{text}: distance {own:.2f}, nearest other {nearest:.2f}, length {length:.3f}, heard {heard_said}".format(**sentences[-1]), flush=True)
    print(json.dumps({**training, "sentences": sentences, "ratio": max(s["ratio"] for s in sentences),
                      "length_error": max(abs(s["length"] - 1) for s in sentences),
                      **{f"heard_{of}": sum(s[f"heard_{of}"] for s in sentences) for of in ("said", "original", "ceiling")}}))


if __name__ == "__main__":
    main()
