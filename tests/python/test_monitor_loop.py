"""penstock.Monitor: a loop's steps, each once, with what it waited and computed."""
import json
import os
import sys
import threading
import types

import pytest

import penstock
from penstock import monitor as monitor_module


@pytest.fixture
def clock(monkeypatch):
    """Time that passes when it is told to: clock.pass_ms(5)."""
    class Clock:
        now = 1_000_000_000

        def pass_ms(self, ms):
            self.now += int(ms * 1e6)

    clock = Clock()
    fake = types.SimpleNamespace(perf_counter_ns=lambda: clock.now, perf_counter=lambda: clock.now / 1e9,
                                 time=lambda: 1e9 + clock.now / 1e9)
    monkeypatch.setattr(monitor_module, "time", fake)
    return clock


@pytest.fixture
def mon(tmp_path):
    with penstock.Monitor(tmp_path / "run") as mon:
        yield mon


def lines(run, kind="step"):
    path = run if isinstance(run, os.PathLike) else run.run
    with open(os.path.join(path, "log.jsonl"), encoding="utf-8") as log:
        return [line for line in map(json.loads, log) if line["kind"] == kind]


def times(mon):
    return [(line["data_ms"], line["step_ms"]) for line in lines(mon)]


def slow(clock, batches, ms):
    for batch in batches:
        clock.pass_ms(ms)
        yield batch


# ---- a wrapped loop


def test_a_wrapped_loop_waits_in_its_loader_and_computes_in_its_body(mon, clock):
    seen = []
    for batch in mon.wrap(slow(clock, "abc", 30)):
        clock.pass_ms(10)
        seen.append(batch)
    assert seen == ["a", "b", "c"]
    assert times(mon) == [(30, 10)] * 3
    assert [line["au"] for line in lines(mon)] == [0.25] * 3


def test_every_pass_is_an_epoch_and_steps_go_on(mon, clock):
    loader = mon.wrap([1, 2])
    for _ in range(3):
        for _ in loader:
            clock.pass_ms(1)
    assert [(line["step"], line["epoch"]) for line in lines(mon)] == [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2)]
    assert [(e["step"], e["epoch"], e["steps"]) for e in lines(mon, "event") if e["event"] == "epoch"] == [
        (2, 0, 2), (4, 1, 2), (6, 2, 2)]


def test_a_wrapped_loader_has_the_length_and_the_attributes_of_the_loader(mon):
    class Loader(list):
        name = "train"

    assert len(mon.wrap(Loader("abc"))) == 3
    assert mon.wrap(Loader()).name == "train"
    with pytest.raises(TypeError):
        len(mon.wrap(iter("abc")))
    with pytest.raises(AttributeError):
        print(mon.wrap(Loader()).missing)
    assert list(mon.wrap(Loader())) == []
    assert lines(mon) == []


def test_a_loop_that_is_left_has_logged_the_step_it_was_in(mon, clock):
    for batch in mon.wrap(slow(clock, range(10), 2)):
        clock.pass_ms(3)
        if batch == 1:
            break
    for _ in mon.wrap([0]):
        clock.pass_ms(5)
    assert times(mon) == [(2, 3), (2, 3), (0, 5)]
    assert [line["epoch"] for line in lines(mon)] == [0, 0, 1]


def test_an_exception_in_the_body_or_in_the_loader_comes_through(mon, clock):
    with pytest.raises(ValueError, match="body"):
        for _ in mon.wrap([1, 2]):
            clock.pass_ms(3)
            raise ValueError("body")

    def broken():
        yield 1
        raise ValueError("loader")

    with pytest.raises(ValueError, match="loader"):
        for _ in mon.wrap(broken()):
            clock.pass_ms(4)
    assert times(mon) == [(0, 3), (0, 4)]


def test_a_loop_within_a_loop_belongs_to_the_outer_steps(mon, clock):
    for _ in mon.wrap(slow(clock, range(2), 1)):
        for _ in mon.wrap(slow(clock, range(3), 2)):
            clock.pass_ms(5)
    assert times(mon) == [(1 + 3 * 2, 3 * 5)] * 2


def test_a_loader_that_is_wrapped_twice_is_counted_once(mon, clock):
    for _ in mon.wrap(mon.wrap(slow(clock, range(2), 7))):
        clock.pass_ms(2)
    assert times(mon) == [(7, 2)] * 2


# ---- blocks


def test_blocks_make_steps(mon, clock):
    for _ in range(3):
        with mon.data():
            clock.pass_ms(4)
        clock.pass_ms(100)  # neither
        with mon.compute():
            clock.pass_ms(6)
        with mon.compute():
            clock.pass_ms(2)
    mon.end_epoch()
    assert times(mon) == [(4, 8)] * 3
    assert lines(mon, "event")[-1]["steps"] == 3


def test_a_loop_that_only_computes_has_a_step_for_every_block(mon, clock):
    for ms in (3, 4):
        with mon.compute():
            clock.pass_ms(ms)
    mon.close()
    assert times(mon) == [(0, 3), (0, 4)]


def test_blocks_within_a_wrapped_loop_divide_its_body(mon, clock):
    for _ in mon.wrap(slow(clock, range(2), 1)):
        with mon.data():  # to the device
            clock.pass_ms(2)
        with mon.compute():
            clock.pass_ms(10)
            with mon.data():  # lazily
                clock.pass_ms(5)
        clock.pass_ms(20)  # writing a picture
    assert times(mon) == [(8, 10)] * 2


def test_a_block_that_raises_ends_like_any_other(mon, clock):
    with pytest.raises(ValueError), mon.compute():
        clock.pass_ms(3)
        raise ValueError
    with mon.compute():
        clock.pass_ms(1)
    mon.close()
    assert times(mon) == [(0, 3), (0, 1)]


# ---- names


def test_named_times_stay_where_they_are_and_checkpoints_stand_apart(mon, clock):
    def loader():
        for _ in range(3):
            with mon.time("augment"):
                clock.pass_ms(6)
            clock.pass_ms(2)
            yield

    for _ in mon.wrap(loader()):
        clock.pass_ms(4)
        with mon.time("checkpoint"):
            clock.pass_ms(50)
            with mon.data():
                clock.pass_ms(1)  # what it reads is its own
    assert times(mon) == [(8, 4)] * 3
    saved = [event for event in lines(mon, "event") if event["event"] == "checkpoint"]
    assert [(event["step"], event["seconds"]) for event in saved] == [(1, 0.051), (2, 0.051), (3, 0.051)]
    report = mon.report()
    assert [(one["name"], one["where"], one["count"]) for one in report["times"]] == [
        ("checkpoint", "", 3), ("augment", "data", 3)]
    assert {finding["cause"] for finding in report["findings"]} == {"data", "checkpoint"}
    assert "augment is 75% of the wait" in " ".join(str(report).split())


def test_a_validation_loop_is_no_training(mon, clock):
    for _ in mon.wrap(slow(clock, range(2), 1)):
        clock.pass_ms(2)
        with mon.time("validation"):
            for _ in mon.wrap(slow(clock, range(3), 10)):
                clock.pass_ms(10)
    assert times(mon) == [(1, 2)] * 2
    assert [event["seconds"] for event in lines(mon, "event") if event["event"] == "validation"] == [0.06, 0.06]


def test_other_threads_may_take_times_but_do_not_make_steps(mon, clock):
    def beside():
        with mon.time("checkpoint"), mon.data():
            pass

    for _ in mon.wrap([1]):
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
        clock.pass_ms(1)
    assert times(mon) == [(0, 1)]
    assert [event["event"] for event in lines(mon, "event")] == ["start", "epoch"]
    assert mon.report()["times"][0]["name"] == "checkpoint"


# ---- the run


def test_a_run_goes_on_after_its_last_step(tmp_path):
    for _ in range(3):
        with penstock.Monitor(tmp_path) as mon:
            for _ in mon.wrap([1, 2]):
                pass
        with open(tmp_path / "log.jsonl", "a", encoding="utf-8") as log:
            log.write('{"t":1,"kind":"st')  # as if it had been killed
    text = (tmp_path / "log.jsonl").read_text().replace('{"t":1,"kind":"st', "").splitlines()
    all_lines = [json.loads(line) for line in text if line]
    assert [(line["step"], line["epoch"]) for line in all_lines if line["kind"] == "step"] == [
        (1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2)]
    assert [line["event"] for line in all_lines if line["kind"] == "event"] == [
        "start", "epoch", "end", "resume", "epoch", "end", "resume", "epoch", "end"]


def test_a_run_may_be_closed_anywhere(mon, clock):
    for _ in mon.wrap([1, 2]):
        clock.pass_ms(1)
        with mon.time("checkpoint"):
            mon.close()
    assert times(mon) == [(0, 1)]
    assert [event["event"] for event in lines(mon, "event")] == ["start", "checkpoint", "end"]


def test_a_run_has_one_writer(mon):
    with pytest.raises(penstock.Error, match="another Monitor"):
        penstock.Monitor(mon.run)
    mon.close()
    mon.close()
    with pytest.raises(penstock.Error, match="closed"):
        list(mon.wrap([1]))
    penstock.Monitor(mon.run).close()


def test_a_crash_is_the_last_that_a_run_says(tmp_path, script):
    with pytest.raises(KeyError), penstock.Monitor(tmp_path / "a") as mon:
        for _ in mon.wrap([1]):
            raise KeyError("mel")
    assert lines(tmp_path / "a", "event")[-1]["event"] == "crash"
    assert lines(tmp_path / "a", "event")[-1]["error"] == "KeyError: 'mel'"
    script("""
        import subprocess, sys
        source = "import penstock, sys\\nmon = penstock.Monitor(sys.argv[1])\\nfor _ in mon.wrap([1, 2]): 1 / 0"
        assert subprocess.run([sys.executable, "-c", source, sys.argv[1]], stderr=subprocess.DEVNULL).returncode == 1
    """, tmp_path / "b")
    assert lines(tmp_path / "b", "event")[-1]["error"] == "ZeroDivisionError: division by zero"
    assert [line["step"] for line in lines(tmp_path / "b")] == [1]


def test_a_forked_child_writes_nothing(mon, clock):
    for _ in mon.wrap([1, 2]):
        child = os.fork()
        if child == 0:
            mon.close()
            os._exit(0)
        os.waitpid(child, 0)
        clock.pass_ms(1)
    assert len(lines(mon)) == 2
    assert [event["event"] for event in lines(mon, "event")] == ["start", "epoch"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(penstock.Error, match=r"file/run/log\.jsonl: cannot be written"):
        penstock.Monitor(tmp_path / "file" / "run")


def test_importing_the_package_imports_no_framework(script):
    assert script("""
        import sys, penstock
        print({"torch", "tensorflow", "keras", "jax", "lightning"} & set(sys.modules))
    """).strip() == "set()"


# ---- a feed of ours


def test_steps_of_a_feed_have_shapes_and_the_feed_has_lines(tones, mon):
    feed = penstock.Feed(tones, batch_size=4, split="all", num_workers=1, preprocessing_mode="runtime")
    for _ in mon.wrap(feed):
        pass
    steps = lines(mon)
    assert len(steps) == len(feed)
    assert {tuple(step["shape"]) for step in steps} == set(feed.shapes)
    assert all(0 <= step["padding"] < 1 for step in steps)
    (line,) = lines(mon, "feed")
    assert line["samples"] == feed.stats()["samples"]
    assert line["stages"]["decode"] > 0
    assert line["skipped_samples"] == []
    assert mon.report()["stages"]
    for _ in mon.wrap(feed.torch()):
        pass
    assert "padding" in lines(mon)[-1] and len(lines(mon, "feed")) == 2


# ---- what the programs say of it


def test_the_programs_show_what_was_written(tmp_path, clock, program):
    with penstock.Monitor(tmp_path) as mon:
        for step in mon.wrap(slow(clock, range(60), 30)):
            clock.pass_ms(10 if step else 500)
        said = mon.report()
    told = program("diagnose", "--run", tmp_path, "--json")
    assert told.returncode == 1
    judged = json.loads(told.stdout)
    assert judged["steps"] == 59
    assert judged["data_ms"]["mean"] == pytest.approx(30) and judged["step_ms"]["mean"] == pytest.approx(10)
    assert judged["au"] == pytest.approx(0.25)
    assert {key: said[key] for key in ("steps", "au", "batch_ms", "data_ms", "step_ms", "oscillation")} == {
        key: judged[key] for key in ("steps", "au", "batch_ms", "data_ms", "step_ms", "oscillation")}
    assert "AU 0.25 (slow)" in " ".join(str(said).split()) and max(map(len, str(said).splitlines())) <= 80
    if "\n  report " in program("--help").stdout:
        shown = program("report", tmp_path)
        assert shown.returncode == 0, shown.stderr
        assert "AU 0.25" in (tmp_path / "report.html").read_text()


def test_an_oscillation_is_found(tmp_path, clock):
    with penstock.Monitor(tmp_path) as mon:
        for step in mon.wrap(range(100)):
            with mon.data():
                clock.pass_ms(50 if step % 10 == 0 else 1)
            clock.pass_ms(10)
        found = mon.report()
    assert found["oscillation"]["period_steps"] == pytest.approx(10, rel=0.05)
    assert "period of 10.0 steps" in str(found)
    assert found["slow_steps"]["cause"] == "data"


def test_too_few_steps_are_not_judged(mon):
    assert "too few steps" in str(mon.report())


# ---- a device that works behind the host's back


class Stream:
    """A stand-in for torch.cuda with one stream. Work is done in order, and time is the test's."""

    def __init__(self, clock):
        self.clock, self.free = clock, 0.0

    def is_initialized(self):
        return True

    def now(self):
        return self.clock.now / 1e6

    def launch(self, ms):
        self.free = max(self.free, self.now()) + ms

    def Event(self, enable_timing):
        assert enable_timing
        stream = self

        class Event:
            at = None

            def record(self):
                self.at = max(stream.free, stream.now())

            def query(self):
                return stream.now() >= self.at

            def elapsed_time(self, end):
                assert self.query() and end.query(), "somebody did not wait for the event"
                return end.at - self.at

            def synchronize(self):
                stream.clock.pass_ms(max(0.0, self.at - stream.now()))

        return Event()


def test_cuda_is_timed_by_events_that_nobody_waits_for(tmp_path, clock, monkeypatch):
    stream = Stream(clock)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=stream))
    with penstock.Monitor(tmp_path) as mon:
        for step in mon.wrap(slow(clock, range(4), 4)):  # the host waits 4 ms each time
            clock.pass_ms(1)
            stream.launch(20 if step < 3 else 5)  # and launches in 1 ms what takes longer
        assert len(lines(mon)) < 4  # those that are done
        assert clock.now < 1_000_000_000 + 30_000_000  # nothing waited for the device
        assert "CUDA events" in mon.report()["meaning"]
    # The first wait was the device's too; later the device was busy all the time.
    assert [line["data_ms"] for line in lines(tmp_path)] == [4, 0, 0, 0]
    assert [line["step_ms"] for line in lines(tmp_path)] == [pytest.approx(ms) for ms in (21, 20, 20, 5)]
    assert [line["step"] for line in lines(tmp_path)] == [1, 2, 3, 4]


def test_a_crash_leaves_no_step_out_that_the_device_has_not_finished(tmp_path, clock, monkeypatch):
    stream = Stream(clock)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=stream))
    with pytest.raises(ValueError), penstock.Monitor(tmp_path) as mon:
        for step in mon.wrap(slow(clock, range(4), 4)):
            stream.launch(20)
            clock.pass_ms(1)
            if step == 2:
                raise ValueError
    assert [line["step"] for line in lines(tmp_path)] == [1, 2, 3]
    assert lines(tmp_path)[-1]["step_ms"] == 1  # the host's
    assert clock.now < 1_000_000_000 + 20_000_000


def test_a_device_that_starves_is_seen_by_its_own_clock(tmp_path, clock, monkeypatch):
    stream = Stream(clock)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=stream))
    with penstock.Monitor(tmp_path) as mon:
        for _ in mon.wrap(slow(clock, range(3), 30)):
            stream.launch(10)
            clock.pass_ms(1)
    # It computes for 10 ms of the 31 that a batch takes, and has nothing to do for 21.
    assert [(line["data_ms"], line["step_ms"]) for line in lines(tmp_path)] == [(30, 10), (21, 10), (21, 10)]
