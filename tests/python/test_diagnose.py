"""`penstock diagnose DIR`: causes that are put there from outside, and what it says, writes and refuses."""
import json
import os
import subprocess

import pytest

from conftest import ROOT

pytestmark = pytest.mark.alone

SMALL = ("--batch-size", 4, "--num-batches", 20)


@pytest.fixture(scope="session")
def delays(tmp_path_factory):
    """A library to preload: bench/diagnose/delays.c says what it reads from the environment."""
    library = tmp_path_factory.mktemp("delays") / "delays.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", ROOT / "bench/diagnose/delays.c", "-o", library, "-ldl"], check=True)
    return library


@pytest.fixture
def diagnose(penstock, tones, tmp_path, delays):
    """diagnose(flags..., env={...}) -> what it found; the index and the cache go to tmp_path."""
    def run(*flags, codes=(1,), env=None):
        done = penstock("diagnose", tones, "--json", "--cache-dir", tmp_path / "cache", *SMALL, *flags,
                        env={**os.environ, **({"LD_PRELOAD": str(delays)} | env if env else {})})
        assert done.returncode in codes, (done.stdout, done.stderr)
        return json.loads(done.stdout)
    return run


def names(found, cause):
    """The verdict; beside other work that takes the CPUs it says that instead, and rightly so."""
    return found["verdict"] == cause or (found["verdict"] == "cpu" and found["other_cpus"] > 0.5)


def test_a_healthy_pipeline_is_told_so_in_one_line(penstock, tones, tmp_path):
    done = penstock("diagnose", tones, "--step-ms", 80, "--cache-dir", tmp_path / "cache", *SMALL)
    if done.returncode == 1 and "other processes take" in done.stdout:
        pytest.skip("other processes take the CPUs")
    assert done.returncode == 0, done.stdout
    lines = [line for line in done.stdout.splitlines() if not line.startswith("note: ")]
    assert len(lines) == 1 and lines[0].startswith("healthy: AU ")


def test_slow_storage_is_named_and_applied_against(diagnose, penstock, tmp_path):
    written = tmp_path / "better.yaml"
    found = diagnose("--step-ms", 10, "--num-workers", 2, "--apply", "-o", written, env={"SLOW_READ_US": "40000"})
    assert names(found, "storage") and found["au"] < 0.5
    assert found["read_again_us"] > 20_000
    assert found["row_us"]["read"] > 20_000
    first = found["remedies"][0]
    assert found["applied"]["remedy"] == next(r for r in found["remedies"] if r["settings"])
    assert first["au"] > 2 * found["au"]
    shown = penstock("info", "--config", written, "--print-config").stdout
    for key, value in found["applied"]["remedy"]["settings"].items():
        assert f"\n{key}: {value} " in shown


def test_a_slow_link_is_named(diagnose):
    found = diagnose("--step-ms", 10, "--device", "simulated", env={"PENSTOCK_SIMULATED_BANDWIDTH": "1e7"})
    assert names(found, "copy")
    assert found["demand_ms"]["copy"] > 3 * found["demand_ms"]["step"]


def test_shapes_that_change_are_named(diagnose):
    found = diagnose("--step-ms", 10, "--compile-ms", 100, "--shapes", "dynamic")
    assert names(found, "shapes")
    assert found["shapes"] > 4 and found["demand_ms"]["compile"] > 0
    assert any(r["settings"] == {"shapes": "4"} for r in found["remedies"])


def test_a_closed_set_of_shapes_is_compiled_once_and_that_does_not_count(diagnose):
    found = diagnose("--step-ms", 10, "--compile-ms", 100, "--shapes", 4, codes=(0, 1))
    assert found["shapes"] > 1 and found["demand_ms"]["compile"] == 0
    assert found["verdict"] != "shapes"


def test_without_a_step_it_says_how_long_a_batch_takes(diagnose):
    found = diagnose(codes=(0, 1))  # beside other work it says so
    assert found["au"] == 0 and "step" not in {r["cause"] for r in found["remedies"]}
    assert found["batch_ms"]["mean"] > 0 and found["band"] in ("good", "moderate", "slow")


def test_the_page_has_verdict_times_demands_and_what_to_change(penstock, tones, tmp_path, delays):
    done = penstock("diagnose", tones, "--step-ms", 10, "--num-workers", 2, "--cache-dir", tmp_path / "cache", *SMALL,
                    env={**os.environ, "LD_PRELOAD": str(delays), "SLOW_READ_US": "40000"})
    assert done.returncode == 1, done.stderr
    for part in ("verdict: ", "\nbatch ", "\nAU ", "\na batch asks\n", "\na row takes a worker\n", "\nwhat to change\n1. "):
        assert part in done.stdout, done.stdout


@pytest.mark.parametrize("flags, message", [
    (("--num-batches", 2), "--num-batches must be at least 8, but is 2"),
    (("--step-ms", -1), "--step-ms and --compile-ms must be 0 or more"),
])
def test_misuse_is_refused(penstock, tones, flags, message):
    done = penstock("diagnose", tones, *flags)
    assert done.returncode == 2 and message in done.stderr


def test_a_file_that_is_there_is_not_overwritten(penstock, tones, tmp_path):
    kept = tmp_path / "kept.yaml"
    kept.write_text("batch_size: 4\n")
    done = penstock("diagnose", tones, "--step-ms", 10, "--apply", "-o", kept)
    assert done.returncode == 2 and "--force overwrites it" in done.stderr
    assert kept.read_text() == "batch_size: 4\n"
