"""The device stage, the autotuner and the switches, as the program shows them."""
import json
import os

import pytest

SMALL = ("--split", "all", "--batch-size", 4, "--no-limits")


def bench(penstock, data, *flags):
    r = penstock("bench", data, *SMALL, "--json", *flags)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def test_a_simulated_device_shows_what_each_part_costs(penstock, tones):
    b = bench(penstock, tones, "--device", "simulated", "--step-ms", 3, "--batches", 40)
    assert b["device"] == "simulated" and b["au"] > 0
    assert set(b["parts"]) == {"fill", "copy", "step"} and b["parts"]["step"]["ms"] == 3
    for part in ("fill", "copy"):
        assert b["parts"][part]["ms"] > 0 and 0 <= b["parts"][part]["hidden"] <= 1
    text = penstock("bench", tones, *SMALL, "--device", "simulated", "--step-ms", 3, "--batches", 40).stdout
    assert "% of it hidden" in text


def test_without_a_device_nothing_is_copied(penstock, tones):
    b = bench(penstock, tones, "--step-ms", 3, "--batches", 20)
    assert b["device"] == "host" and set(b["parts"]) == {"fill", "step"}


def test_a_copy_that_is_waited_for_is_not_taken_for_the_feed(penstock, tones):
    slow = {**os.environ, "PENSTOCK_SIMULATED_BANDWIDTH": "2e7"}
    flags = ("--device", "simulated", "--disable-device-prefetch", "--step-ms", 3)
    done = penstock("bench", tones, *SMALL, *flags, "--batches", 20, "--json", env=slow)
    copy = json.loads(done.stdout)["parts"]["copy"]
    assert copy["ms"] > 1 and copy["hidden"] < 0.05
    found = json.loads(penstock("diagnose", tones, *SMALL[:4], *flags, "--num-workers", 2, "--json", env=slow).stdout)
    assert found["demand_ms"]["copy_wait"] > 5
    assert found["verdict"] == "copy" or found["other_cpus"] > 0.5  # beside other work it says that instead


@pytest.mark.parametrize("flag", ["--disable-overlap", "--disable-cpu-gpu-overlap", "--disable-device-prefetch", "--disable-gpu-prefetch",
                                  "--disable-memory-mapping", "--disable-autotune", "--disable-native-loading",
                                  "--disable-tf-native-loading"])
def test_every_switch_is_there_on_every_command_that_runs_the_feed(penstock, tones, flag):
    key = {"cpu_gpu_overlap": "overlap", "gpu_prefetch": "device_prefetch", "memory_mapping": "enable_memory_mapping",
           "tf_native_loading": "native_loading"}
    name = flag.removeprefix("--disable-").replace("-", "_")
    for command in (("bench",), ("tune", "--step-ms", "5"), ("cache", "build"), ("info",)):
        r = penstock(command[0], *command[1:2] if command[0] == "cache" else (), tones,
                     *(command[1:] if command[0] != "cache" else ()), flag, "--print-config")
        assert r.returncode == 0, r.stderr
        assert f"{key.get(name, name)}: false" in r.stdout


def test_ablate_switches_off_one_thing_at_a_time(penstock, tones):
    rows = bench(penstock, tones, "--ablate", "--step-ms", 2, "--batches", 20, "--repeat", 1)["ablation"]
    assert [r["off"] for r in rows] == ["", "native_loading", "device_prefetch", "overlap", "autotune"]
    assert all(r["samples_per_second"] > 0 and r["au"] > 0 for r in rows)
    cached = bench(penstock, tones, "--ablate", "--mode", "cached", "--device", "cpu", "--num-workers", 1, "--batches", 20, "--repeat", 1)
    assert [r["off"] for r in cached["ablation"]] == ["", "enable_memory_mapping"]
    text = penstock("bench", tones, *SMALL, "--ablate", "--batches", 20, "--repeat", 1).stdout
    assert "switched off" in text and "x samples/s" in text


def test_what_the_autotuner_does_is_in_the_run_log_with_its_reason(penstock, tones, tmp_path):
    for attempt in range(5):  # a machine that has no time for us gives it nothing to take back
        run = tmp_path / str(attempt)
        bench(penstock, tones, "--step-ms", 4, "--batches", 150, "--run", run)
        changes = [line for line in map(json.loads, (run / "log.jsonl").read_text().splitlines()) if line["kind"] == "tune"]
        if changes:
            break
    assert changes and all({"t", "kind", "epoch", "step", "workers", "depth", "reason"} <= set(c) for c in changes)


def test_a_device_that_is_not_there_is_named(penstock, tones):
    r = penstock("bench", tones, "--device", "cuda", "--batches", 2)
    assert r.returncode == 2 and "cuda" in r.stderr and r.stdout == ""
    r = penstock("bench", tones, "--device", "tpu", "--batches", 2)
    assert r.returncode == 2 and "must be cpu, cuda, cuda:N or simulated, but is 'tpu'" in r.stderr


def test_batch_size_auto_needs_a_budget(penstock, tones):
    r = penstock("bench", tones, "--batch-size", "auto", "--batches", 2)
    assert r.returncode == 2 and "device_memory" in r.stderr
    b = json.loads(penstock("bench", tones, "--split", "all", "--batch-size", "auto", "--device-memory", "2GB", "--batches", 20,
                            "--no-limits", "--json").stdout)
    assert all(s["rows"] * s["frames"] <= 2000 for s in b["shapes"])
