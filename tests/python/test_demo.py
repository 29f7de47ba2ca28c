"""setup/demo.py: the page that `./run demo` ends with, and how the demo ends when something fails."""
import importlib.util
import io
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from conftest import ROOT

SCRIPT = ROOT / "setup/demo.py"
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def demo():
    spec = importlib.util.spec_from_file_location("demo", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def figures(times=1.0, **changed):
    """Of a whole demo; the numbers are so many times as large."""
    def speed(samples, cpu):
        return {"samples_per_second": samples * times, "cpu_seconds_per_1000": cpu * times}
    return {"machine": {"name": "A processor", "cpus": 2}, "load": [0.5 * times, 1.5 * times], "clips": int(200 * times), "hours": 0.37 * times,
            "live": speed(4213, 0.47), "cached": speed(43775, 0.045), "device": {"step_ms": 2.5 * times, "starved": 0.25, "fed": 0.99},
            "peer": {"ours": speed(4000, 0.5), "theirs": speed(500, 4.0)}, "voice": {"seconds": 1.5, "steps": 40}, **changed}


def page(demo, shown, colour=False):
    return [demo.row(*pieces, colour=colour) for pieces in demo.page_rows(shown)]


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("shown", [
    figures(1e-3),
    figures(),
    figures(1e30),
    figures(machine={"name": "processor " * 30, "cpus": 4096}, device={"step_ms": 1e6 + 0.5, "starved": 0.0, "fed": 1.7}),
    figures(peer={"theirs": {"left_out": "RuntimeError: " + "x" * 500}}),
])
def test_no_line_is_wider_than_80_columns_whatever_was_measured(demo, shown, colour):
    lines = [ESCAPE.sub("", line) for line in page(demo, shown, colour)]
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 30


def test_a_long_line_on_the_way_is_wrapped(demo, capsys):
    demo.say("verdict: " + "other processes take the CPUs, " * 9)
    demo.say("     1    33.0 %   208x856")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 3 and max(map(len, lines)) <= 80 and lines[-1] == "     1    33.0 %   208x856"


def test_columns_stand_below_each_other_and_colour_moves_nothing(demo):
    plain = page(demo, figures())
    ends = {line.index(number) + len(number) for line, number in zip(plain[4:7], ("samples/s", "4,213", "43,775"))}
    ends |= {line.index(number) + len(number) for line, number in zip(plain[8:10], ("4,000", "500"))}
    assert len(ends) == 1, plain
    assert [ESCAPE.sub("", line) for line in page(demo, figures(), colour=True)] == plain


def test_figures_are_shown_as_measured(demo):
    text = "\n".join(page(demo, figures()))
    for figure in ("4,213", "43,775", "0.470", "0.045", "8.0 times", "0.25", "0.99", "2 CPUs", "0.5 when it began", "1.5 when it ended"):
        assert figure in text
    assert text.count("█") > 0 and demo.bar(1) == "█" * demo.BAR and demo.bar(0) == ""


def test_the_next_commands_are_ones_that_penstock_has(demo, penstock):
    commands = re.findall(r"^  build/penstock (\w+)", "\n".join(page(demo, figures())), re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        assert penstock(command, "--help").returncode == 0


def test_without_torch_the_page_says_how_to_get_it(demo):
    left_out = demo.dataloader(pythons=("no-such-python",))
    text = "\n".join(page(demo, figures(peer={"theirs": left_out})))
    assert "left out: needs torch" in text and "pip install -r requirements.txt" in text and "times" not in text


def test_without_a_voice_the_page_names_no_sound(demo):
    shown = figures()
    del shown["voice"]
    assert "demo.wav" not in "\n".join(page(demo, shown)) and "demo.wav" in "\n".join(page(demo, figures()))


@pytest.mark.parametrize("terminal, environment, expected", [
    (True, {"TERM": "xterm"}, True),
    (True, {"TERM": "xterm", "NO_COLOR": ""}, False),
    (True, {"TERM": "dumb"}, False),
    (True, {}, False),
    (False, {"TERM": "xterm"}, False),
])
def test_colour_is_for_terminals_that_want_it(demo, terminal, environment, expected):
    stream = io.StringIO()
    stream.isatty = lambda: terminal
    assert demo.in_colour(stream, environment) is expected
    assert ("\x1b[" in "".join(page(demo, figures(), colour=expected))) is expected


def in_a_copy(folder, program, stage):
    """A stage in a folder with nothing but the script and a program that does this."""
    for path, text in (("setup/demo.py", SCRIPT.read_text(encoding="utf-8")), ("build/penstock", program)):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(0o755)
    (folder / "data").mkdir()
    return subprocess.Popen([sys.executable, folder / "setup/demo.py", stage], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_command_that_fails_is_the_last_thing_on_the_screen(tmp_path):
    done = in_a_copy(tmp_path, "#!/bin/sh\necho '{\"clips\"'\necho 'no room left' >&2\nexit 3\n", "feed")
    lines = done.communicate(timeout=30)[0].splitlines()
    assert done.returncode == 3
    assert lines[-3] == "no room left"
    assert lines[-2].startswith("build/penstock synth ") and lines[-2].endswith(": exit code 3")
    assert "docs/troubleshooting.md" in lines[-1] and (ROOT / "docs/troubleshooting.md").exists()


def test_a_program_that_is_not_there_is_named(tmp_path):
    done = in_a_copy(tmp_path, "#!/no/such/interpreter\n", "voice")
    text = done.communicate(timeout=30)[0]
    assert done.returncode == 127 and "No such file" in text and "Traceback" not in text


def test_ctrl_c_ends_it_quietly_and_not_before_the_command_has_tidied_up(tmp_path):
    saved = tmp_path / "saved"
    program = f"#!/bin/sh\ntrap 'sleep 0.6; touch {saved}; exit 130' INT\necho 'validation at step 1'\nwhile :; do sleep 0.05; done\n"
    process = in_a_copy(tmp_path, program, "voice")
    while "validation" not in process.stdout.readline():
        pass
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True).stdout.split()
    for pid in [process.pid, *map(int, children)]:  # as a terminal does
        os.kill(pid, signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert saved.exists() and process.stdout.read() == ""


def test_a_page_of_nothing_says_so(tmp_path):
    done = in_a_copy(tmp_path, "", "page")
    assert "nothing was measured yet" in done.communicate(timeout=30)[0] and done.returncode == 2


def test_the_page_of_kept_figures_into_a_file_is_plain(tmp_path):
    done = in_a_copy(tmp_path, "", "voice")
    done.communicate(timeout=30)
    (tmp_path / "data/demo-figures.json").write_text(json.dumps(figures()), encoding="utf-8")
    done = subprocess.run([sys.executable, tmp_path / "setup/demo.py", "page"], capture_output=True, text=True, timeout=30, check=True)
    assert "\x1b" not in done.stdout and "4,213" in done.stdout


def test_what_training_says_is_shortened(demo):
    line = "      10     0    5.43210     0.001     1.234     123.4     0.50  0.990     12345    11.2%        0"
    assert demo.shortened(line) == "step   10   loss 5.43210     123.4 ms a step   AU 0.990"
    assert demo.shortened("validation at step 20: loss 5.0 over 10 utterances") is not None
    assert demo.shortened("4 shapes planned in 1.2 s") is None and demo.shortened("run data/demo-run") is None
