"""penstock train and retrace, as they are called."""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import time

import pytest

from conftest import BUILD, ROOT

TRAINER = BUILD / "penstock-train"
pytestmark = pytest.mark.skipif(not TRAINER.exists(), reason="built without LibTorch")

SHORT = ("--batch-size", 2, "--shapes", 2, "--max-mel-frames", 400, "--on-bad-sample", "skip", "--val-every", 0, "--compute-threads", 1)


def steps(run):
    lines = map(json.loads, (run / "log.jsonl").read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line["kind"] == "step"]


def course(run):
    """What must not change; times may."""
    return [(s["step"], s["epoch"], s["loss"], s["losses"], s["grad_norm"], s["lr"]) for s in steps(run)]


def start(*arguments):
    return subprocess.Popen([str(BUILD / "penstock"), "train", *map(str, arguments)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def wait_for_step(run, step, process, seconds=300):
    end = time.monotonic() + seconds
    while not (run / "log.jsonl").exists() or f'"step":{step},' not in (run / "log.jsonl").read_text():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def whole(penstock, tones, tmp_path_factory):
    """A run of 8 steps that nobody stops; tests must not change it."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    done = penstock("train", tones, "--run", run, "--steps", 8, "--log-every", 2, *SHORT)
    assert done.returncode == 0, done.stdout + done.stderr
    return run, done.stdout


def test_help_with_examples(penstock):
    for command in ("train", "retrace"):
        shown = penstock(command, "--help")
        assert shown.returncode == 0 and "Examples" in shown.stdout and "--json" in shown.stdout
        for flag in ("--model-size", "--steps", "--epochs", "--precision", "--gradient-accumulation-steps", "--log-every",
                     "--optimization-level", "--train-data", "--val-data", "--batch-size"):
            assert flag in shown.stdout, flag
    assert "train" in penstock("--help").stdout and "retrace" in penstock("--help").stdout


def test_a_run_shows_lines_and_leaves_its_folder(whole):
    run, shown = whole
    assert [s["step"] for s in steps(run)] == list(range(1, 9))
    assert {p.name for p in run.iterdir()} >= {"config.yaml", "symbols.txt", "log.jsonl", "checkpoints"}
    lines = [line.split() for line in shown.splitlines() if re.match(r" +\d+ ", line)]
    assert [line[0] for line in lines] == ["2", "4", "6", "8"] and {len(line) for line in lines} == {11}
    assert re.search(r"performance over 8 steps: compute .* AU .*; limited by .* 0 retraces", shown)


def test_the_runs_config_can_be_used_again(penstock, whole):
    run, _ = whole
    shown = penstock("train", "--config", run / "config.yaml", "--print-config")
    assert shown.returncode == 0, shown.stderr
    values = [re.findall(r"^(\w+: .*?) +#", text, re.MULTILINE) for text in (shown.stdout, (run / "config.yaml").read_text())]
    assert values[0] == values[1] and "batch_size: 2" in values[0] and "model_size: nano" in values[0]


def test_killed_at_random_steps_and_resumed_it_gives_the_same_losses(penstock, tones, tmp_path, whole):
    """Also with other workers, and from cache instead of live."""
    moments = random.Random(3)
    for i in range(20 if os.environ.get("PENSTOCK_LONG") else 2):
        run = tmp_path / f"killed{i}"
        for kill in sorted(moments.sample(range(1, 8), 2)):
            arguments = (tones, "--run", run, "--steps", 8, "--save-every", 2, "--num-workers", 1 + i % 2, *SHORT,
                         "--preprocessing-mode", ("precompute", "runtime")[i % 2], "--cache-dir", tmp_path / f"cache{i}")
            process = start(*arguments)
            wait_for_step(run, kill, process)
            process.kill()
            process.wait()
        done = penstock("train", *arguments)
        assert done.returncode == 0, done.stderr
        assert course(run) == course(whole[0])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_step_and_saves(tones, tmp_path, number):
    run = tmp_path / "run"
    process = start(tones, "--run", run, "--steps", 100000, "--save-every", 0, *SHORT)
    wait_for_step(run, 2, process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    saved = int(re.search(r"step (\d+) is saved", errors)[1])
    assert steps(run)[-1]["step"] == saved
    assert [p.name for p in (run / "checkpoints").glob("step-*")] == [f"step-{saved:08}"]


def test_misuse_is_named(penstock, tones, tmp_path):
    for arguments, reason in [
        (("train",), "which dataset?"),
        (("train", tones, "--modell-size", "nano"), "did you mean --model-size?"),
        (("train", tones, "--model-size", "huge"), "must be one of nano, tiny"),
        (("train", tones, "--precision", "fp8"), "must be one of fp32, bf16"),
        (("train", tones, "--gradient-accumulation-steps", 0), "must be from 1 to 65536"),
        (("train", tones, "--world", 2), "world must be 1"),
        (("train", tones, "--device", "simulated"), "device must be cpu or cuda"),
        (("train", "/nonexistent"), "/nonexistent"),
        (("train", tones, "--config", ROOT / "nothing.yaml"), "nothing.yaml"),
    ]:
        done = penstock(*arguments, "--run", tmp_path / "run")
        assert done.returncode == 2 and reason in done.stderr, (arguments, done.stderr)
    assert not (tmp_path / "run").exists()


def test_another_mel_is_refused_by_its_keys(penstock, tones, whole):
    done = penstock("train", tones, "--run", whole[0], "--steps", 9, *SHORT, "--mel-fmax", 7000)
    assert done.returncode == 2 and "mel_fmax: 8000 in the run, 7000 now" in done.stderr


def test_two_trainers_do_not_share_a_run(penstock, tones, tmp_path):
    first = start(tones, "--run", tmp_path / "run", "--steps", 100000, *SHORT)
    try:
        wait_for_step(tmp_path / "run", 1, first)
        second = penstock("train", tones, "--run", tmp_path / "run", *SHORT)
        assert second.returncode == 2 and "another process trains" in second.stderr
    finally:
        first.kill()
        first.communicate()


def test_levels_are_presets_that_flags_beat(penstock, tones):
    for level, precision, schedule in [("basic", "fp32", "constant"), ("enhanced", "fp32", "cosine"), ("experimental", "bf16", "noam")]:
        shown = penstock("train", tones, "--optimization-level", level, "--print-config").stdout
        assert re.search(rf"^precision: {precision} +# configs/levels/{level}.yaml", shown, re.MULTILINE)
        assert re.search(rf"^schedule: {schedule} ", shown, re.MULTILINE)
    shown = penstock("train", tones, "--optimization-level", "basic", "--schedule", "noam", "--print-config").stdout
    assert re.search(r"^schedule: noam +# --schedule", shown, re.MULTILINE)


def test_the_feeds_commands_take_the_trainers_keys_from_a_file_in_silence(penstock, tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("model_size: tiny\nlearning_rate: 0.001\n")
    shown = penstock("info", "--config", file, "--print-config")
    assert shown.returncode == 0 and shown.stderr == ""
    assert "model_size: tiny" in shown.stdout and "weight_decay" not in shown.stdout
    asked = penstock("info", "--model-size", "tiny")
    assert asked.returncode == 2 and "--model-size: not expected here" in asked.stderr


def test_retrace_finds_none_with_static_shapes(penstock, tones):
    done = penstock("retrace", tones, "--steps", 3, "--batch-size", 2, "--pad-to-fixed-length", "--max-mel-frames", 300,
                    "--max-text-length", 200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Static shapes (pad_to_fixed_length): True" in done.stdout and "OK: no retraces in 3 steps" in done.stdout
    assert len(re.findall(r"^step +\d+ +\(2, 200, 300\) +loss", done.stdout, re.MULTILINE)) == 3
    assert re.search(r"Step time: [\d.]+ ± [\d.]+ ms", done.stdout)


def test_retrace_finds_those_of_dynamic_shapes(penstock, tones):
    arguments = (tones, "--steps", 4, "--batch-size", 2, "--shapes", "dynamic", "--max-mel-frames", 400)
    done = penstock("retrace", *arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Static shapes (pad_to_fixed_length): False" in done.stdout and "PROBLEM" in done.stdout
    found = json.loads(penstock("retrace", *arguments, "--json").stdout)
    assert found["retraces"] > 0 and len(found["steps"]) == 4
    causes = [s["retrace"] for s in found["steps"] if "retrace" in s]
    assert len(causes) == found["retraces"] and all(len(c["utterances"]) == 2 and "planned" in c["cause"] for c in causes)


def test_without_the_trainer_it_says_what_to_install(tmp_path):
    alone = tmp_path / "penstock"
    alone.write_bytes(pathlib.Path(BUILD / "penstock").read_bytes())
    alone.chmod(0o755)
    done = subprocess.run([alone, "train", "x"], capture_output=True, text=True, check=False, env={**os.environ, "PATH": "/nonexistent"})
    assert done.returncode == 2 and "./run build" in done.stderr and "torch" in done.stderr
