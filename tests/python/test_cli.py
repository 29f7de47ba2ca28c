"""The program as a person meets it: results, messages, exit codes."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest
import soundfile

from conftest import BUILD, ROOT, wait_for

CONFIGS = ROOT / "tests/data/configs"


def settings(printed):
    """--print-config's lines as {key: (value, origin)}"""
    rows = [line.split("#", 1) for line in printed.splitlines()]
    return {k.split(":", 1)[0]: (k.split(":", 1)[1].strip(), origin.strip()) for k, origin in rows}


def test_every_command_has_help_with_examples(penstock):
    assert penstock("--help").returncode == 0
    for command in ("synth", "info", "bench"):
        shown = penstock(command, "--help")
        assert shown.returncode == 0
        assert "Example" in shown.stdout and "--json" in shown.stdout


def test_misuse_is_exit_code_2_with_a_reason(penstock, tones):
    for arguments, reason in [
        ((), "subcommand"),
        (("bench",), "which dataset?"),
        (("info", "/nonexistent"), "/nonexistent"),
        (("bench", tones, "--batch-sise", 3), "did you mean --batch-size?"),
        (("bench", tones, "--batch-size", 0), "must be from 1 to 32768"),
        (("bench", tones, "--pad-to-fixed-length", "--shapes", 4), "leave one of them out"),
        (("bench", tones, "--mode", "frozen"), "--mode"),
        (("bench", tones, "--step-ms", -1), "step-ms"),
        (("bench", tones, "--batches", 1), "at least 2"),
        (("bench", tones, "--config", "/nonexistent.yaml"), "/nonexistent.yaml"),
        (("bench", tones, "--batch-size", 1000), "1000"),
        (("synth", tones), "metadata.csv"),
    ]:
        r = penstock(*arguments)
        assert r.returncode == 2, (arguments, r)
        assert reason in r.stderr, (arguments, r.stderr)
        assert r.stdout == ""


@pytest.mark.parametrize("name", sorted(p.name for p in CONFIGS.glob("*.yaml")))
def test_users_files_load_and_can_be_shown(penstock, name):
    r = penstock("bench", "--config", CONFIGS / name, "--print-config")
    assert r.returncode == 0, r.stderr
    shown = settings(r.stdout)
    for line in (CONFIGS / name).read_text().splitlines():
        key, _, value = line.strip().partition(": ")
        if key in shown:
            same = shown[key][0] == value or float(shown[key][0]) == float(value)  # 1e-4 is shown as 0.0001
            assert same and name in shown[key][1]


def test_flags_win_over_the_file_and_other_spellings_are_said(penstock, tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("data:\n  batch_size: 3\n  use_tf_native_loading: true\n")
    r = penstock("bench", "--config", file, "--batch-size", 5, "--disable-tf-native-loading", "--print-config")
    shown = settings(r.stdout)
    assert shown["batch_size"] == ("5", "--batch-size")
    assert shown["native_loading"] == ("false", "--disable-tf-native-loading")
    assert "use_tf_native_loading is called native_loading here" in r.stderr


def test_keys_that_are_not_needed_here_are_flags_with_a_reason(penstock, tones):
    r = penstock("bench", tones, "--pin-memory", "--shuffle-buffer-multiplier", 10, "--disable-persistent-workers", "--print-config")
    assert r.returncode == 0
    for key in ("pin_memory", "shuffle_buffer_multiplier", "persistent_workers"):
        assert f"{key} is not needed: " in r.stderr


def test_info_shows_the_dataset(penstock, tones):
    text = penstock("info", tones)
    assert text.returncode == 0
    assert "40 clips" in text.stdout and "3 speakers" in text.stdout and "█" in text.stdout
    shown = json.loads(penstock("info", tones, "--split", "all", "--json").stdout)
    seconds = [soundfile.info(p).duration for p in (tones / "wavs").iterdir()]
    assert shown["clips"] == 40 and shown["speakers"] == 3
    assert shown["hours"] == pytest.approx(sum(seconds) / 3600)
    assert [c["count"] for c in shown["shapes"]] == [1, 2, 4, 8]
    assert all(len(c["shapes"]) <= c["count"] for c in shown["shapes"])
    paddings = [c["padding"] for c in shown["shapes"]]
    assert paddings == sorted(paddings, reverse=True)


def test_info_shows_the_rows_that_memory_gives_each_shape(penstock, tones):
    arguments = ("info", tones, "--split", "all", "--batch-size", "auto", "--device-memory", "8GB")
    text = penstock(*arguments)
    assert text.returncode == 0, text.stderr
    assert "batches within 8000 frames (batch_size auto: 8.00 GB at 1.00 MB a frame)" in text.stdout
    shown = json.loads(penstock(*arguments, "--world", 2, "--json").stdout)
    assert shown["batch"] == {"batch_size": "auto", "world": 2, "device_memory": 8_000_000_000,
                              "frame_memory": 1_000_000, "frames_budget": 8000}
    for shape in (s for choice in shown["shapes"] for s in choice["shapes"]):
        assert shape["rows"] % 2 == 0 and shape["rows"] / 2 * shape["frames"] <= 8000
    for more, reason in [((), "batch_size auto needs device_memory"),
                         (("--device-memory", "8MB"), "frame_memory of 1000000 bytes"),
                         (("--shapes", "dynamic"), "shapes is dynamic")]:
        refused = penstock("info", tones, "--batch-size", "auto", *more)
        assert refused.returncode == 2 and reason in refused.stderr


def test_info_names_what_is_bad_and_exits_1(penstock, tones, tmp_path):
    folder = tmp_path / "bad"
    shutil.copytree(tones, folder, ignore=shutil.ignore_patterns(".penstock"))
    victims = sorted((folder / "wavs").iterdir())[:3]
    victims[0].unlink()
    victims[1].write_bytes(b"")
    victims[2].write_bytes(victims[2].read_bytes()[:1000])
    r = penstock("info", folder)
    assert r.returncode == 1
    for victim in victims:
        assert victim.stem in r.stdout
    too_long = penstock("info", tones, "--split", "all", "--max-mel-frames", 400)
    assert "frames, max_mel_frames is 400" in too_long.stdout
    stopped = penstock("bench", folder)
    assert stopped.returncode == 1 and "--on-bad-sample skip" in stopped.stderr
    skipping = json.loads(penstock("bench", folder, "--split", "all", "--on-bad-sample", "skip", "--batches", 5,
                                   "--batch-size", 4, "--json").stdout)
    assert skipping["skipped"] == 3
    assert {s["id"] for s in skipping["skipped_samples"]} == {v.stem for v in victims}


def test_bench_reports_what_programs_rely_on(penstock, tones):
    r = penstock("bench", tones, "--split", "all", "--batch-size", 8, "--pad-to-fixed-length", "--max-mel-frames", 880,
                 "--max-text-length", 256, "--batches", 30, "--step-ms", 2, "--repeat", 2, "--json")
    assert r.returncode == 0, r.stderr
    b = json.loads(r.stdout)
    assert b["samples"] == 240 and len(b["runs"]) == 2
    for run in b["runs"]:  # b has the medians, each for itself
        assert run["samples_per_second"] == pytest.approx(240 / run["seconds"])
        assert sum(s["share"] for s in run["stages"]) == pytest.approx(1)
    assert set(b["batch_ms"]) == {"mean", "std", "cv", "p50", "p99", "max"}
    assert [s["name"] for s in b["stages"]] == ["read", "decode", "mel", "tokens", "cache", "pad"]
    assert b["shapes"] == [{"rows": 8, "tokens": 256, "frames": 880, "batches": 30}]
    assert 0 < b["padding"] < 1 and 0 < b["au"] <= 1 and 0 < b["au_ceiling"] <= 1 and b["skipped"] == 0
    for key in ("cpu_seconds_per_1000", "first_batch_ms", "peak_rss_mb", "peak_anon_mb"):
        assert b[key] > 0
    assert set(b["limits"]) == {"memcpy_rows_per_s", "mel_us_per_frame"}


def test_bench_may_end_before_the_largest_shape_came(penstock, tones):
    for seed in range(8):
        r = penstock("bench", tones, "--batch-size", 4, "--batches", 2, "--seed", seed)
        assert r.returncode == 0, r.stderr


def test_bench_for_people_fits_the_terminal(penstock, tones):
    r = penstock("bench", tones, "--batch-size", 4, "--batches", 10, "--step-ms", 1)
    assert r.returncode == 0 and "samples/s" in r.stdout and "AU" in r.stdout
    assert max(map(len, r.stdout.splitlines())) <= 100


def test_without_espeak_the_package_is_named(penstock, tmp_path):
    r = penstock("synth", tmp_path / "x", env={"PATH": str(tmp_path)})
    assert r.returncode == 2 and "apt-get install espeak-ng" in r.stderr and "--voice tone" in r.stderr
    assert not (tmp_path / "x/metadata.csv").exists()


@pytest.mark.skipif(not shutil.which("espeak-ng"), reason="espeak-ng is not installed")
@pytest.mark.parametrize("voice", ["en", "fa"])
def test_speech_becomes_batches(penstock, tmp_path, voice):
    made = json.loads(penstock("synth", tmp_path / voice, "--voice", voice, "--clips", 20, "--json").stdout)
    assert made["clips"] == 20
    assert 1.1 <= made["seconds"]["min"] and made["seconds"]["max"] <= 10.1
    text = (tmp_path / voice / "metadata.csv").read_text(encoding="utf-8")
    assert ("ی" in text) == (voice == "fa")
    b = json.loads(penstock("bench", tmp_path / voice, "--split", "all", "--batch-size", 4, "--batches", 8, "--json").stdout)
    assert b["skipped"] == 0


def catches(process, number):
    mask = re.search(r"^SigCgt:\s*(\w+)", pathlib.Path(f"/proc/{process}/status").read_text(), re.MULTILINE)[1]
    return int(mask, 16) >> (number - 1) & 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["synth", "bench"])
def test_an_interruption_leaves_nothing_half_written(tones, tmp_path, command, number):
    folder = tmp_path / "new"
    arguments = {"synth": ["synth", folder, "--voice", "tone", "--clips", "100000"],
                 "bench": ["bench", tones, "--batch-size", "4", "--batches", "100000000"]}[command]
    p = subprocess.Popen([str(BUILD / "penstock"), *map(str, arguments)], stderr=subprocess.PIPE, text=True)
    wait_for(lambda: catches(p.pid, number))
    time.sleep(0.3)  # into its work
    p.send_signal(number)
    assert p.wait(timeout=30) == 128 + number
    assert "interrupted" in p.stderr.read()
    assert not folder.exists() or not any(pathlib.Path(folder).rglob("*.wav"))


def test_the_index_is_kept_beside_the_data_or_elsewhere(penstock, tones, tmp_path):
    penstock("info", tones)
    assert any((tones / ".penstock").glob("index-*"))
    elsewhere = tmp_path / "cache"
    assert penstock("info", tones, "--cache-dir", elsewhere).returncode == 0
    assert any(elsewhere.glob("index-*"))


def test_the_tree_keeps_its_include_directions():
    checked = subprocess.run(["python3", ROOT / "tests/include_directions.py"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_nothing_of_the_environment_is_needed(penstock, tones):
    assert penstock("info", tones, env={"PATH": os.environ["PATH"]}).returncode == 0
