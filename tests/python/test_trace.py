"""--trace of bench and train: a timeline in the trace event format, whose spans are where they belong."""
import collections
import json

import pytest

from conftest import BUILD

STAGES = {"read", "decode", "mel", "tokens", "cache", "pad"}


def checked(path):
    """Holds to the trace event format; returns {track's name: its spans, by their beginning}."""
    trace = json.loads(path.read_text(encoding="utf-8"))
    assert set(trace) == {"traceEvents", "displayTimeUnit", "otherData"} and trace["displayTimeUnit"] in ("ms", "ns")
    names, tracks = {}, collections.defaultdict(list)
    for event in trace["traceEvents"]:
        assert event["ph"] in ("M", "X") and isinstance(event["pid"], int) and isinstance(event["tid"], int) and isinstance(event["args"], dict)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name", "thread_sort_index")
            if event["name"] == "thread_name":
                assert event["tid"] not in names
                names[event["tid"]] = event["args"]["name"]
        else:
            assert event["ts"] >= 0 and event["dur"] >= 0 and event["name"]
            tracks[event["tid"]].append(event)
    assert sorted(names) == sorted(tracks) and len(set(names.values())) == len(names)
    for spans in tracks.values():
        begun, open_until = -1, []
        for span in spans:
            assert span["ts"] >= begun  # in their order
            begun = span["ts"]
            while open_until and open_until[-1] <= begun + 0.0015:  # times are rounded to a nanosecond
                open_until.pop()
            end = begun + span["dur"]
            assert not open_until or end <= open_until[-1] + 0.0015, span  # inside what is open, or behind it
            open_until.append(end)
    return {names[tid]: spans for tid, spans in tracks.items()}


def place(span):
    return span["args"]["epoch"], span["args"]["step"]


def check_flow(tracks):
    """Stages in their row, rows in the span of their batch's slot, which was filled before its step began."""
    workers = [spans for name, spans in tracks.items() if name.startswith("worker ")]
    fills = {place(s): s for name, spans in tracks.items() if name.startswith("slot ") for s in spans if s["name"] == "fill"}
    rows = collections.Counter()
    assert workers and fills
    for spans in workers:
        row = None
        for span in spans:
            if span["name"] == "row":
                row = span
                fill = fills[place(row)]
                rows[place(row)] += 1
                assert fill["ts"] <= row["ts"] + 0.0015 and row["ts"] + row["dur"] <= fill["ts"] + fill["dur"] + 0.0015
            else:
                assert span["name"] in STAGES and place(span) == place(row) and span["args"]["row"] == row["args"]["row"]
                assert row["ts"] <= span["ts"] and span["ts"] + span["dur"] <= row["ts"] + row["dur"] + 0.0015
    steps = [s for s in tracks["steps"] if s["name"] == "step"]
    assert steps
    for step in steps:
        fill = fills[place(step)]
        assert rows[place(step)] == 4 and fill["ts"] + fill["dur"] <= step["ts"] + 0.0015
    return fills, steps


def test_bench_draws_workers_slots_and_steps(penstock, tones, tmp_path):
    done = penstock("bench", tones, "--batch-size", 4, "--batches", 40, "--step-ms", 2, "--no-limits", "--num-workers", 2, "--prefetch-buffer-size", 4,
                    "--trace", tmp_path / "trace.json")
    assert done.returncode == 0, done.stderr
    tracks = checked(tmp_path / "trace.json")
    assert {"worker 0", "worker 1", "slot 0", "slot 3", "steps"} <= set(tracks) and "slot 4" not in tracks
    _, steps = check_flow(tracks)
    assert len(steps) == 40 and all(s["dur"] >= 1999 for s in steps)
    assert sum(s["name"] == "wait" for s in tracks["steps"]) == 40


def test_copies_to_a_device_lie_between_filling_and_step(penstock, tones, tmp_path):
    flags = ("bench", tones, "--batch-size", 4, "--batches", 40, "--step-ms", 2, "--no-limits", "--device", "simulated", "--trace", tmp_path / "trace.json")
    for more in ((), ("--disable-device-prefetch",), ("--disable-overlap",)):
        assert penstock(*flags, *more).returncode == 0
        tracks = checked(tmp_path / "trace.json")
        fills, steps = check_flow(tracks)
        copies = {place(s): s for name, spans in tracks.items() if name.startswith("copy ") for s in spans}
        for step in steps:
            copy, fill = copies[place(step)], fills[place(step)]
            assert fill["ts"] + fill["dur"] <= copy["ts"] + 0.0015 and copy["ts"] + copy["dur"] <= step["ts"] + 0.0015


def test_a_timeline_of_several_settings_is_refused(penstock, tones, tmp_path):
    done = penstock("bench", tones, "--ablate", "--trace", tmp_path / "trace.json")
    assert done.returncode == 2 and "--ablate" in done.stderr and not (tmp_path / "trace.json").exists()


@pytest.mark.skipif(not (BUILD / "penstock-train").exists(), reason="built without LibTorch")
def test_train_draws_its_steps_and_checkpoints(penstock, tones, tmp_path):
    done = penstock("train", tones, "--run", tmp_path / "run", "--steps", 3, "--batch-size", 4, "--shapes", 1, "--max-mel-frames", 300,
                    "--val-fraction", 0.3, "--compute-threads", 1, "--trace", tmp_path / "trace.json")
    assert done.returncode == 0, done.stdout + done.stderr
    tracks = checked(tmp_path / "trace.json")
    _, steps = check_flow(tracks)
    assert len(steps) == 3 and {"wait", "step", "validation", "checkpoint"} == {s["name"] for s in tracks["steps"]}
