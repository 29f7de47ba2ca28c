"""penstock monitor, in a real terminal (tmux), in a pipe and around a command, with a stand-in for NVIDIA's library."""
import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid

import pytest

from conftest import BUILD

pytestmark = pytest.mark.alone

MONITOR = [str(BUILD / "penstock"), "monitor"]
SWINGING = "".join(f"{97 if i < 9 else 3} 40000 81920 310 1410 1200 300 4242:39000\n" for i in range(18))
TWO_GPUS = f"gpu NVIDIA A100-SXM4-80GB\n{SWINGING}gpu NVIDIA L4\n90 9000 23000 70 2040 - - x\n"


def until(condition, what, seconds=30):
    """Waits for something that takes as long as it takes."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    pytest.fail(f"waited in vain for {what}")


@pytest.fixture
def gpus(tmp_path):
    """gpus(trace) -> an environment in which the stand-in plays it."""
    def play(trace):
        (tmp_path / "trace").write_text(trace)
        return {**os.environ, "LD_LIBRARY_PATH": str(BUILD / "tests/nvml"), "PENSTOCK_NVML_TRACE": str(tmp_path / "trace")}
    return play


class Terminal:
    def __init__(self, columns, rows, environment):
        self.tmux = ["tmux", "-L", f"penstock-{uuid.uuid4().hex[:12]}", "-f", "/dev/null"]
        kept = ("LD_LIBRARY_PATH", "PENSTOCK_NVML_TRACE", "PATH", "HOME")
        self.call("new-session", "-d", "-x", str(columns), "-y", str(rows),
                  "env", "-i", "TERM=screen-256color", "LC_ALL=C.UTF-8", "PS1=$ ", *(f"{key}={environment[key]}" for key in kept if key in environment), "sh")
        until(lambda: "$" in self.text(), "a shell")

    def call(self, *words):
        return subprocess.run([*self.tmux, *words], capture_output=True, text=True, check=True, timeout=30).stdout

    def type(self, line):
        self.call("send-keys", line, "Enter")

    def text(self):
        return self.call("capture-pane", "-p")

    def lines(self):
        return self.text().rstrip("\n").split("\n")

    def shows(self, *texts):
        until(lambda: all(text in self.text() for text in texts), f"{texts} in\n{self.text()}")
        return self.lines()

    def state(self):
        """Whether the other screen is shown, the cursor is visible, and all rows scroll."""
        other, cursor, top, bottom, height = self.call(
            "display", "-p", "#{alternate_on} #{cursor_flag} #{scroll_region_upper} #{scroll_region_lower} #{pane_height}").split()
        return other == "1", cursor == "1", top == "0" and int(bottom) == int(height) - 1


@pytest.fixture
def terminal():
    opened = []

    def open_terminal(columns, rows, environment):
        opened.append(Terminal(columns, rows, environment))
        return opened[-1]
    yield open_terminal
    for each in opened:
        subprocess.run([*each.tmux, "kill-server"], capture_output=True, check=False)


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (60, 20), (34, 8)])
def test_the_view_fits_its_terminal(terminal, gpus, columns, rows):
    t = terminal(columns, rows, gpus(TWO_GPUS))
    t.type(" ".join(MONITOR))
    lines = t.shows("GPU 0", "GPU 1", "CPU", "█")
    assert lines[0].startswith("penstock monitor") and re.search(r"\d:\d\d$", lines[0])
    assert len(lines) <= rows and all(len(line) <= columns for line in lines)
    assert [line[:5] for line in lines].count("GPU 0") == 1
    if columns == 80:
        wanted = "NVIDIA A100-SXM4-80GB", "40.0 GB of 81.9 GB", "W  1410 MHz", "PCIe 1.20 GB/s in, 300 MB/s out", "process 4242"
        lines = t.shows(*wanted, "memory", "page cache", "disk", "cores")
        assert "Insufficient Permissions" in t.text()
    assert t.state() == (True, False, True)


def test_a_terminal_may_be_resized_and_is_restored_by_ctrl_c(terminal, gpus):
    t = terminal(80, 24, gpus(TWO_GPUS))
    t.type(" ".join(MONITOR) + "; echo code $?")
    t.shows("GPU 1", "PCIe")
    for columns, rows in ((50, 12), (120, 30), (80, 24)):
        t.call("resize-window", "-x", str(columns), "-y", str(rows))
        until(lambda wanted=columns: re.search(r"\d:\d\d$", t.lines()[0]) and len(t.lines()[0]) == wanted, f"a title of {columns} columns")
        lines = t.lines()
        assert [line[:5] for line in lines].count("GPU 0") == 1 and len(lines) <= rows
        assert all(len(line) <= columns for line in lines)
    t.call("send-keys", "C-c")
    t.shows("watched for", "code 0")
    assert t.state() == (False, True, True)
    assert "PCIe" not in t.text()  # nothing of the view is left


@pytest.mark.parametrize("name", ["TERM", "HUP"])
def test_a_terminal_is_restored_when_the_monitor_is_killed(terminal, gpus, tmp_path, name):
    t = terminal(80, 24, gpus(TWO_GPUS))
    t.type(f"echo $$ > {tmp_path}/shell; " + " ".join(MONITOR) + "; echo code $?")
    t.shows("GPU 1")
    shell = (tmp_path / "shell").read_text().strip()
    found = int(subprocess.run(["pgrep", "-P", shell], capture_output=True, text=True, check=True).stdout)
    os.kill(found, getattr(signal, f"SIG{name}"))
    t.shows("watched for", f"code {128 + getattr(signal, f'SIG{name}')}")
    assert t.state() == (False, True, True)


def test_a_commands_output_stays_above_the_view(terminal, gpus):
    t = terminal(80, 24, gpus(TWO_GPUS))
    t.type(" ".join(MONITOR) + " -- sh -c 'i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo line $i of it; sleep 0.05; done; exit 5'; echo code $?")
    lines = t.shows("line 40 of it", "GPU 0", "command")
    title = next(i for i, line in enumerate(lines) if line.startswith("penstock monitor"))
    assert title == 16 and all(not line.startswith("line") for line in lines[title:])
    shown = [line for line in lines[:title] if line.startswith("line")]
    numbers = [int(line.split()[1]) for line in shown]
    assert numbers == list(range(numbers[0], numbers[-1] + 1)) and len(numbers) > 8  # in order, and none written over
    t.shows("line 60 of it", "watched for", "code 5")
    assert t.state() == (False, True, True)
    assert not any(line.startswith("penstock monitor  sh") for line in t.lines())


def test_ctrl_c_reaches_a_command_once(terminal, gpus, tmp_path):
    script = tmp_path / "command.py"
    script.write_text("import signal, time\ncount = 0\n"
                      "def came(*_):\n    global count\n    count += 1\n"
                      "signal.signal(signal.SIGINT, came)\nprint('ready', flush=True)\n"
                      "while not count:\n    time.sleep(0.01)\ntime.sleep(0.5)\nprint(f'{count} came')\nraise SystemExit(9)\n")
    t = terminal(80, 24, gpus(TWO_GPUS))
    t.type(" ".join(MONITOR) + f" -- {sys.executable} {script}; echo code $?")
    t.shows("ready", "GPU 0")
    t.call("send-keys", "C-c")
    t.shows("1 came", "watched for", "code 9")


def test_in_a_pipe_there_are_plain_lines_and_the_verdict(gpus):
    r = subprocess.run([*MONITOR, "--interval", "0.05", "--duration", "5"], env=gpus(TWO_GPUS), capture_output=True, text=True, check=True, timeout=60)
    assert "\x1b" not in r.stdout and r.stderr == ""
    assert len(re.findall(r"^0:0\d  GPU 0 \d+ % 40.0 GB 310 W  GPU 1 90 %.*CPU .*memory .*disk", r.stdout, re.MULTILINE)) >= 2
    row = re.search(r"^GPU 0 +(\d+) % +(\d+) % +([\d.]+) +(\d+) % +([\d.]+) s", r.stdout, re.MULTILINE)
    assert 40 < int(row[1]) < 60 and 40 < int(row[2]) < 55 and 40 < int(row[4]) < 60
    assert 0.8 <= float(row[5]) <= 1.0  # 18 samples
    assert "GPU 0 swings between 3 % and 97 %" in r.stdout and "GPU 1 is kept busy" in r.stdout
    assert "next: penstock diagnose -- COMMAND" in r.stdout


def test_without_a_gpu_it_says_so_and_shows_the_rest(penstock):
    r = penstock("monitor", "--duration", 2.5)
    assert r.returncode == 0
    assert "no GPU: there is no NVIDIA driver" in r.stdout and "the machine's CPU" in r.stdout and "disk read" in r.stdout


def test_a_gpu_that_vanishes_is_named_and_the_rest_goes_on(gpus):
    r = subprocess.run([*MONITOR, "--duration", "3"], env=gpus("gpu A\n50\n50\n50\nlost\ngpu B\n70\n"), capture_output=True, text=True,
                       check=True, timeout=60)
    assert "GPU 0 (A) has vanished: GPU is lost (15); the rest goes on" in r.stdout
    assert re.search(r"^0:02  GPU 1 70 %", r.stdout, re.MULTILINE)


def test_the_analysis_for_programs(gpus):
    r = subprocess.run([*MONITOR, "--json", "--interval", "0.05", "--", "sh", "-c", "echo hello; sleep 2; exit 4"], env=gpus(TWO_GPUS),
                       capture_output=True, text=True, check=False, timeout=60)
    assert r.returncode == 4 and r.stderr == "hello\n"
    found = json.loads(r.stdout)
    judged = {s["what"]: s for s in found["utilisation"]}
    assert list(judged) == ["GPU 0", "GPU 1", "the command's CPU", "the machine's CPU"]
    assert judged["GPU 0"]["pressure"] == "swings" and judged["GPU 1"]["pressure"] == "steady"
    assert found["next"] == "penstock diagnose -- sh -c 'echo hello; sleep 2; exit 4'"


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_killed_monitor_leaves_whole_lines(gpus, tmp_path, ending):
    log = tmp_path / f"samples.{ending}"
    sizes = []
    for _ in range(2):  # the second goes on behind the first
        running = subprocess.Popen([*MONITOR, "--interval", "0.05", "--log-file", str(log)], env=gpus(TWO_GPUS), stdout=subprocess.DEVNULL)
        until(lambda: log.exists() and len(log.read_text().splitlines()) > 5 + sum(sizes), "samples")
        running.kill()
        running.wait()
        text = log.read_text()
        assert text.endswith("\n")
        sizes.append(len(text.splitlines()))
    if ending == "jsonl":
        samples = [json.loads(line) for line in text.splitlines()]
        assert {g["name"] for s in samples for g in s["gpus"]} == {"NVIDIA A100-SXM4-80GB", "NVIDIA L4"}
        assert samples[-1]["t"] > samples[0]["t"] and samples[-1]["memory"]["total"] > 0
    else:
        rows = list(csv.DictReader(text.splitlines()))
        assert all(None not in row and None not in row.values() for row in rows)
        assert {row["gpu0_utilisation"] for row in rows} <= {"0.97", "0.03"} and rows[0]["gpu1_pcie_rx"] == ""
        assert float(rows[-1]["time"]) > float(rows[0]["time"]) and "core0" in rows[0] and "command_cpus" in rows[0]


def test_signals_reach_the_command_and_its_code_comes_back():
    program = "trap 'echo asked to end; exit 7' TERM; trap 'echo saved' USR1; echo ready; while :; do sleep 0.1; done"
    running = subprocess.Popen([*MONITOR, "--", "sh", "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout.readline() == "ready\n"
    running.send_signal(signal.SIGUSR1)
    assert running.stdout.readline() == "saved\n"
    running.send_signal(signal.SIGTERM)
    out, err = running.communicate(timeout=30)
    assert running.returncode == 7 and out == "asked to end\n"
    assert "watched for" in err
    killed = subprocess.run([*MONITOR, "--", "sh", "-c", "kill -9 $$"], capture_output=True, text=True, check=False, timeout=30)
    assert killed.returncode == 128 + 9


def test_a_runs_figures_are_shown_and_it_is_given_samples_of_the_machine(terminal, gpus, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    now = time.time()
    steps = [{"t": now, "kind": "step", "step": i, "epoch": 0, "step_ms": 8.0, "data_ms": 2.0, "au": 0.8, "retraces": 1, "ring": 3} for i in range(20)]
    feed = {"t": now, "kind": "feed", "samples": 10, "samples_per_second": 1234.5, "workers": 2, "depth": 6, "ring_level": 3.0}
    (run / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*steps, feed]))
    t = terminal(80, 24, gpus(TWO_GPUS))
    t.type(" ".join(MONITOR) + f" --run {run}")
    t.shows("AU 0.80", "step 19", "8.0 ms a step, 2.0 ms waiting for data", "1 retrace", "3 ready", "of 6", "2 workers")
    with open(run / "log.jsonl", "a") as log:
        log.write(json.dumps({**steps[0], "step": 20, "au": 0.9, "retraces": 2}) + "\n")
    t.shows("AU 0.90", "step 20", "2 retraces")
    samples = until(lambda: [line for line in map(json.loads, (run / "log.jsonl").read_text().splitlines()) if line["kind"] == "gpu"], "samples")
    assert samples[0]["gpus"][0]["name"] == "NVIDIA A100-SXM4-80GB" and 0 <= samples[0]["cpu"]["busy"] <= 1


@pytest.mark.parametrize(("flags", "message"), [
    (("--log-file", "x.txt"), "--log-file must end in .csv or .jsonl, but is x.txt"),
    (("--log-file", "/nowhere/x.csv"), "/nowhere/x.csv: cannot be written"),
    (("--interval", "0"), "--interval"),
    (("--", "no-such-program"), "no-such-program: cannot be started: No such file or directory"),
])
def test_misuse_is_named(penstock, flags, message):
    r = penstock("monitor", *flags)
    assert r.returncode == 2 and message in r.stderr + r.stdout


def test_a_csv_file_with_other_columns_is_refused(penstock, tmp_path):
    (tmp_path / "other.csv").write_text("time,loss\n1,2\n")
    r = penstock("monitor", "--log-file", tmp_path / "other.csv")
    assert r.returncode == 2 and "other columns" in r.stderr
    assert (tmp_path / "other.csv").read_text() == "time,loss\n1,2\n"
