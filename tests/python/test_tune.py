"""`penstock tune`: what it writes, what it says, and where it begins."""
import json
import re

import pytest

from conftest import ROOT

CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))
QUICK = ("--seconds", 0.02, "--batch-size", 4)


@pytest.fixture
def tune(penstock, tones, tmp_path):
    """tune(flags...) -> the finished process; the file goes to tmp_path/tuned.yaml, the index and the cache to tmp_path."""
    def run(*flags, step_ms=5, output=tmp_path / "tuned.yaml", quick=QUICK, code=0):
        done = penstock("tune", tones, "--step-ms", step_ms, "-o", output, "--cache-dir", tmp_path / "cache", *quick, *flags)
        assert done.returncode == code, (done.stdout, done.stderr)
        return done
    return run


def settings(penstock, path):
    """What a configuration file means: key -> (value, where it came from)."""
    shown = penstock("info", "--config", path, "--print-config")
    assert shown.returncode == 0, shown.stderr
    return dict(re.match(r"(\w+): (.*?) +# (.*)", line).group(1, 2) for line in shown.stdout.splitlines())


def test_the_file_loads_again_and_says_why(tune, penstock, tmp_path):
    done = tune("--seed", 7, "--mel-preset", "librosa")
    text = (tmp_path / "tuned.yaml").read_text()
    loaded = settings(penstock, tmp_path / "tuned.yaml")
    assert loaded["batch_size"] == "4" and loaded["seed"] == "7" and loaded["mel_preset"] == "librosa"
    assert loaded["preprocessing_mode"] == "runtime"  # nothing is cached
    assert int(loaded["num_workers"]) >= 1 and int(loaded["prefetch_buffer_size"]) >= 2
    keys = [i for i, line in enumerate(text.splitlines()) if re.match(r"\w+: ", line)]
    assert len(keys) >= 5
    for key in ("batch_size", "shapes", "preprocessing_mode", "num_workers", "prefetch_buffer_size"):
        assert re.search(rf"^# .+\n{key}: ", text, re.MULTILINE), key
    assert "--build-cache" in done.stdout and "written to" in done.stdout and "busy" in done.stdout
    assert "<- written" in done.stdout and "run for real" in done.stdout
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 80


def test_the_tuned_feed_runs(tune, penstock, tones, tmp_path):
    tune("--no-verify")
    ran = penstock("bench", "--config", tmp_path / "tuned.yaml", "--batches", 4, "--no-limits", "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["shapes"][0]["rows"] == 4


def test_an_existing_file_stays_unless_forced(tune, tmp_path):
    path = tmp_path / "tuned.yaml"
    path.write_text("seed: 1\n")
    refused = tune(code=2)
    assert "--force" in refused.stderr and path.read_text() == "seed: 1\n"
    tune("--force", "--no-verify")
    assert "num_workers" in path.read_text()


def test_what_is_given_is_not_varied(tune):
    result = json.loads(tune("--json", "--num-workers", 1, "--prefetch-buffer-size", 3, "--shapes", 2,
                             "--preprocessing-mode", "runtime", "--verify").stdout)
    assert [(s["mode"], s["workers"], s["depth"], s["shapes"]) for s in result["settings"]] == [("live", 1, 3, 2)]
    assert {m["workers"] for m in result["measured"]} == {1}
    assert 0 < result["verified"]["au"] <= 1 and result["verified"]["predicted"] == result["recommended"]["au"]


def test_the_cache_is_measured_once_it_is_there(tune, tmp_path):
    live = json.loads(tune("--json", "--no-verify").stdout)
    assert {s["mode"] for s in live["settings"]} == {"live"}
    assert not list((tmp_path / "cache").rglob("*.pack"))  # nothing is built unasked
    built = json.loads(tune("--json", "--no-verify", "--force", "--build-cache").stdout)
    again = json.loads(tune("--json", "--no-verify", "--force").stdout)
    for result in (built, again):
        assert {m["mode"] for m in result["measured"]} == {"live", "cached"}
        assert {s["mode"] for s in result["settings"]} == {"live", "cached"}


def test_a_fixed_shape_stays_one(tune, penstock, tmp_path):
    result = json.loads(tune("--json", "--no-verify", "--pad-to-fixed-length", "--max-mel-frames", 2000, "--max-text-length", 400).stdout)
    assert {s["shapes"] for s in result["settings"]} == {1}
    assert settings(penstock, tmp_path / "tuned.yaml")["max_mel_frames"] == "2000"


def test_wrong_use_is_refused_before_anything_is_measured(penstock, tones, tmp_path):
    assert penstock("tune", tones).returncode == 2  # no --step-ms
    unknown = penstock("tune", tones, "--step-ms", 5, "--device", "RTX 9999", "-o", tmp_path / "t.yaml")
    assert unknown.returncode == 2 and "RTX 9999" in unknown.stderr
    assert all(path.stem in unknown.stderr for path in CONFIGS)
    assert not (tmp_path / "t.yaml").exists()


# ---- starting points ----

def test_starting_points_are_ordinary_files(penstock):
    assert {path.stem for path in CONFIGS} == {"rtx4090", "rtx3090", "rtx3060", "a100", "h100"}
    for path in CONFIGS:
        loaded = settings(penstock, path)
        assert set(re.findall(r"^(\w+):", path.read_text(), re.MULTILINE)) == {
            "batch_size", "num_workers", "prefetch_buffer_size", "gradient_accumulation_steps"}
        assert loaded["gradient_accumulation_steps"] in "12"


@pytest.mark.parametrize("card", ["rtx4090", "rtx3090", "rtx3060"])
def test_seed_values_are_kept(penstock, card):
    ours, theirs = (settings(penstock, path) for path in (ROOT / f"configs/{card}.yaml", ROOT / f"tests/data/configs/{card}.yaml"))
    assert ours == theirs


@pytest.mark.parametrize("name, file", [
    ("rtx4090", "rtx4090"), ("RTX 4090", "rtx4090"), ("NVIDIA GeForce RTX 4090", "rtx4090"), ("4090", "rtx4090"), ("3090", "rtx3090"),
    ("3060", "rtx3060"), ("A100", "a100"), ("NVIDIA A100-SXM4-80GB", "a100"), ("H100", "h100"), ("NVIDIA H100 PCIe", "h100")])
def test_a_gpu_has_many_names(penstock, tones, name, file):
    shown = penstock("tune", tones, "--step-ms", 5, "--device", name, "--print-config")
    assert shown.returncode == 0, shown.stderr
    batch = re.search(r"^batch_size: (\d+)", (ROOT / f"configs/{file}.yaml").read_text(), re.MULTILINE)[1]
    assert re.search(rf"^batch_size: {batch} +# configs/{file}.yaml", shown.stdout, re.MULTILINE)


@pytest.mark.parametrize("name", ["RTX A1000", "NVIDIA GeForce RTX 4090 Laptop GPU", "gpu", "GTX 1080"])
def test_another_gpu_has_no_starting_point(penstock, tones, name):
    assert penstock("tune", tones, "--step-ms", 5, "--device", name, "--print-config").returncode == 2


def test_flags_and_file_win_over_the_starting_point(penstock, tones, tmp_path):
    (tmp_path / "mine.yaml").write_text("num_workers: 3\n")
    shown = penstock("tune", tones, "--step-ms", 5, "--device", "rtx3060", "--batch-size", 5, "--config", tmp_path / "mine.yaml",
                     "--print-config").stdout
    assert re.search(r"^batch_size: 5 +# --batch-size", shown, re.MULTILINE)
    assert re.search(r"^num_workers: 3 ", shown, re.MULTILINE)
    assert re.search(r"^prefetch_buffer_size: 8 +# configs/rtx3060.yaml", shown, re.MULTILINE)


def test_the_starting_point_is_named_and_still_tuned(tune, penstock, tmp_path):
    done = tune("--device", "rtx3060", "--no-verify", quick=("--seconds", 0.02))
    assert "configs/rtx3060.yaml" in done.stdout
    loaded = settings(penstock, tmp_path / "tuned.yaml")
    assert loaded["batch_size"] == "8" and loaded["gradient_accumulation_steps"] == "2"
    assert int(loaded["num_workers"]) < 8  # what the starting point has


def test_device_is_still_the_setting(penstock, tones):
    shown = penstock("tune", tones, "--step-ms", 5, "--device", "cuda:1", "--print-config").stdout
    assert re.search(r"^device: cuda:1 +# --device", shown, re.MULTILINE)
