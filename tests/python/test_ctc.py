"""examples/ctc: another model behind the same trainer learns, is stopped, goes on, and shows what it hears."""
import json
import re
import subprocess

import numpy as np
import pytest

from conftest import BUILD

CTC = BUILD / "ctc"
pytestmark = pytest.mark.skipif(not CTC.exists(), reason="built without LibTorch")
SHORT = ("--batch-size", 4, "--shapes", 1, "--max-mel-frames", 300, "--warmup-steps", 10, "--val-fraction", 0.3, "--val-every", 0, "--compute-threads", 1)


def ctc(*arguments):
    return subprocess.run([CTC, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False)


def course(run):
    lines = map(json.loads, (run / "log.jsonl").read_text(encoding="utf-8").splitlines())
    return [(line["step"], line["loss"], line["grad_norm"]) for line in lines if line["kind"] == "step"]


@pytest.fixture(scope="module")
def whole(tones, tmp_path_factory):
    """A run of 30 steps that nobody stops; tests must not change it."""
    run = tmp_path_factory.mktemp("ctc") / "whole"
    done = ctc(tones, "--run", run, "--steps", 30, *SHORT)
    assert done.returncode == 0, done.stdout + done.stderr
    return run, done.stdout


def test_its_loss_falls(whole):
    losses = [loss for _, loss, _ in course(whole[0])]
    assert len(losses) == 30 and np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])


def test_it_shows_what_it_hears(whole, tones):
    shown = whole[1]
    said = re.findall(r"^  said   (.+)\n  heard  ", shown, re.MULTILINE)
    texts = {line.split("|")[2].lower() for line in (tones / "metadata.csv").read_text(encoding="utf-8").splitlines()}
    assert said and set(said) <= texts
    rate, clips = re.search(r"^token error rate ([\d.]+) over (\d+) clips \(held out\)$", shown, re.MULTILINE).groups()
    assert 0 <= float(rate) <= 1.5 and len(said) == min(4, int(clips))


def test_stopped_and_resumed_it_gives_the_same_losses(whole, tones, tmp_path):
    constant = ("--schedule", "constant")  # another number of steps has another cosine
    for run, parts in ((tmp_path / "once", [6]), (tmp_path / "twice", [4, 6])):
        for steps in parts:
            done = ctc(tones, "--run", run, "--steps", steps, *constant, *SHORT)
            assert done.returncode == 0, done.stdout + done.stderr
    assert "resumed behind step 4" in done.stdout
    assert course(tmp_path / "twice") == course(tmp_path / "once")


def test_misuse_is_named(whole, tones, tmp_path):
    for arguments, reason in (((tones,), "--run is required"),
                              ((tones, "--run", tmp_path / "run", "--add-blank"), "add_blank must be false"),
                              ((tones, "--run", tmp_path / "run", "--model-size", "tiny"), "--model-size: not expected")):
        done = ctc(*arguments)
        assert done.returncode == 2 and reason in done.stderr, done.stderr
