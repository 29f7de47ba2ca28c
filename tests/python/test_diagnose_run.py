"""penstock diagnose --run: a run's log, judged."""
import json
import random

import pytest

from conftest import BUILD


@pytest.fixture
def made_run(tmp_path):
    """Writes a run's log: made_run(steps, step_ms, data_ms, **lines) -> its folder."""
    def make(steps, step_ms, data_ms, checkpoint_every=0, tail=""):
        noise, t, lines = random.Random(3), 1e9, []
        lines.append({"t": t, "kind": "event", "event": "start", "step": 0})
        for step in range(1, steps + 1):
            compute, wait = (ms * noise.uniform(0.95, 1.05) for ms in (step_ms, data_ms))
            t += (compute + wait) / 1e3
            lines.append({"t": t, "kind": "step", "step": step, "epoch": 0, "step_ms": compute, "data_ms": wait,
                          "padding": 0.1, "retraces": 0, "shape": [16, 64, 320]})
            if checkpoint_every and step % checkpoint_every == 0:
                t += 1
                lines.append({"t": t, "kind": "event", "event": "checkpoint", "step": step})
        lines.append({"t": t, "kind": "feed", "samples": 16 * steps, "workers": 2,
                      "stages": {"read": 50, "decode": 900, "mel": 5000, "tokens": 20, "cache": 0, "pad": 30}})
        (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + tail)
        return tmp_path
    return make


def test_a_starved_run_is_told_what_to_change(penstock, made_run):
    told = penstock("diagnose", "--run", made_run(100, 40, 40))
    assert told.returncode == 1
    assert "waits for data 50 % of the time" in told.stdout
    assert "preprocessing_mode: precompute" in told.stdout
    assert max(map(len, told.stdout.splitlines())) <= 80


def test_a_healthy_run_is_told_so(penstock, made_run):
    run = made_run(100, 40, 0.2)
    told = penstock("diagnose", "--run", run)
    assert told.returncode == 0
    assert "healthy" in told.stdout.splitlines()[0]
    assert "What to change" not in told.stdout
    assert json.loads(penstock("diagnose", "--run", run, "--json").stdout)["healthy"] is True


def test_programs_get_the_same_judgement(penstock, made_run):
    told = penstock("diagnose", "--run", made_run(100, 40, 1, checkpoint_every=10), "--json")
    assert told.returncode == 1
    result = json.loads(told.stdout)
    assert [f["cause"] for f in result["findings"]] == ["checkpoint"]
    assert result["findings"][0]["lines"] == "save_every: 40"
    assert result["oscillation"]["period_steps"] == pytest.approx(10, rel=0.1)
    assert result["slow_steps"]["cause"] == "checkpoint"
    assert result["steps"] == 99


def test_a_log_that_is_being_written_is_judged(penstock, made_run):
    assert penstock("diagnose", "--run", made_run(50, 40, 0.2, tail='{"t":1,"kind":"st')).returncode == 0


def test_a_log_with_too_few_steps_is_not_called_healthy(penstock, made_run):
    for steps, found in ((0, "no step is in its log"), (1, "only the first step is in its log")):
        told = penstock("diagnose", "--run", made_run(steps, 40, 1))
        assert told.returncode == 1
        assert found in told.stdout


@pytest.mark.skipif(not (BUILD / "penstock-train").exists(), reason="built without LibTorch")
def test_a_real_run_of_the_trainer_is_judged(penstock, tones, tmp_path):
    trained = penstock("train", tones, "--run", tmp_path, "--steps", 4, "--batch-size", 2, "--max-mel-frames", 400, "--val-every", 0,
                       "--on-bad-sample", "skip", "--compute-threads", 1)
    assert trained.returncode == 0, trained.stderr
    result = json.loads(penstock("diagnose", "--run", tmp_path, "--json").stdout)
    assert result["steps"] == 3
    assert result["step_ms"]["mean"] > 0
    assert 0 < result["au"] <= 1
    assert result["retraces"] == 0


def test_misuse_is_explained(penstock, tmp_path):
    nothing = penstock("diagnose")
    assert nothing.returncode == 2
    assert "--run RUN" in nothing.stderr
    missing = penstock("diagnose", "--run", tmp_path / "nowhere")
    assert missing.returncode == 2
    assert "nowhere" in missing.stderr
