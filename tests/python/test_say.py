"""penstock say: a checkpoint speaks. What it says is noise after two steps; the way to it is what is tested."""
import json
import shutil
import wave

import numpy as np
import pytest

from conftest import BUILD

pytestmark = pytest.mark.skipif(not (BUILD / "penstock-train").exists(), reason="built without LibTorch")
SHORT = ("--batch-size", 2, "--shapes", 1, "--max-mel-frames", 400, "--on-bad-sample", "skip", "--val-every", 0, "--compute-threads", 1)


@pytest.fixture(scope="module")
def run(penstock, tones, tmp_path_factory):
    folder = tmp_path_factory.mktemp("say") / "run"
    done = penstock("train", tones, "--run", folder, "--steps", 2, "--save-every", 1, *SHORT)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def text(tones):
    return (tones / "metadata.csv").read_text(encoding="utf-8").splitlines()[0].split("|")[2]


def samples(path):
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 22050)
        return np.frombuffer(file.readframes(file.getnframes()), "<i2")


def test_the_wav_and_the_mel_are_of_one_length(penstock, run, text, tmp_path):
    done = penstock("say", run, text, "-o", tmp_path / "a.wav", "--save-mel", tmp_path / "a.npy", "--most-seconds", 1, "--json")
    assert done.returncode == 0, done.stderr
    said, mel = json.loads(done.stdout), np.load(tmp_path / "a.npy")
    assert mel.shape == (said["frames"], 80) and mel.dtype == np.float32 and np.isfinite(mel).all()
    assert len(samples(tmp_path / "a.wav")) == said["frames"] * 256
    assert said["ended"] or 86 <= said["frames"] < 86 + 8  # a second, in whole steps
    assert not said["averaged"]  # after two updates


def test_the_same_words_are_the_same_samples(penstock, run, text, tones, tmp_path):
    def said(name, checkpoint, *options):
        done = penstock("say", checkpoint, text, "-o", tmp_path / name, "--most-seconds", 0.5, *options)
        assert done.returncode == 0, done.stderr
        return (tmp_path / name).read_bytes()

    newest = sorted((run / "checkpoints").glob("step-*"))[-1]
    reference = sorted((tones / "wavs").iterdir())[0]
    alone = said("a.wav", run)
    assert said("b.wav", newest) == alone
    assert said("c.wav", run, "--reference", reference) != alone


def test_misuse_is_named_and_writes_nothing(penstock, run, text, tmp_path):
    out = tmp_path / "a.wav"
    cut = tmp_path / "cut"
    shutil.copytree(sorted((run / "checkpoints").glob("step-*"))[-1], cut / "checkpoints" / "step-00000002")
    for name in ("config.yaml", "symbols.txt"):
        shutil.copy(run / name, cut)
    weights = cut / "checkpoints" / "step-00000002" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    for checkpoint, words, options, reason in (
            (tmp_path / "nowhere", text, (), "nowhere: must be a run's folder with a checkpoint"),
            (cut / "checkpoints" / "step-00000002", text, (), "model.safetensors"),
            (run, "چ", (), "U+0686"),
            (run, " ", (), "must have a character to say"),
            (run, text, ("--reference", run / "config.yaml"), "config.yaml: must be WAV"),
            (run, text, ("--reference", tmp_path / "none.wav"), "none.wav: cannot be read")):
        done = penstock("say", checkpoint, words, "-o", out, *options)
        assert done.returncode == 2 and reason in done.stderr, done.stderr
    assert not out.exists()
