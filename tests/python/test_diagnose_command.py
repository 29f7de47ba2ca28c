"""penstock diagnose -- COMMAND: any command, watched while it runs, never changed by it."""
import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from conftest import BUILD, ROOT

pytestmark = pytest.mark.alone

PYTHON = sys.executable


@pytest.fixture
def diagnose(penstock, tmp_path):
    """Runs it with a temporary folder of its own, which must be empty in the end."""
    def run(*arguments, **options):
        rest = tmp_path / "tmp"
        rest.mkdir(exist_ok=True)
        environment = {**os.environ, "TMPDIR": str(rest), **options.pop("environment", {})}
        ran = penstock("diagnose", *arguments, env=environment, **options)
        assert [p.name for p in rest.iterdir() if p.name.startswith("penstock-")] == []
        return ran
    return run


@pytest.fixture
def python_file(tmp_path):
    def write(source, name="script.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        return path
    return write


@pytest.mark.parametrize("name", ["torch_input", "jax_sync", "jax_compile", "torch_healthy"])
def test_real_loops_are_told_apart(diagnose, name):
    told = diagnose("--json", "--", PYTHON, ROOT / f"bench/diagnose/{name}.py", "--seconds", 6, "--seed", 5)
    result = json.loads(told.stdout)
    assert result["verdict"] == name.split("_")[1], result
    assert told.returncode == (0 if name.endswith("healthy") else 1)
    assert result["exit_code"] == 0
    assert pathlib.Path(result["lines"][0]["file"]).parent == ROOT / "bench/diagnose"


def test_the_page_fits_a_terminal_and_names_the_users_lines(diagnose, python_file):
    script = python_file("""
        import time, torch
        x, end = torch.randn(300, 300), time.monotonic() + 2
        while time.monotonic() < end:
            x = torch.tanh(x @ x)
        """)
    told = diagnose("--", PYTHON, script)
    assert told.returncode == 0, told.stderr
    assert "Healthy" in told.stdout
    assert "script.py:5" in told.stdout
    assert max(map(len, told.stdout.splitlines())) <= 80


def test_commands_that_are_not_python_are_run_and_not_judged(diagnose):
    told = diagnose("--", "sh", "-c", "echo hello; sleep 0.3")
    assert told.returncode == 0
    assert told.stdout.startswith("hello\n")
    assert "No verdict" in told.stdout


@pytest.mark.parametrize("command, code", [
    (["sh", "-c", "exit 3"], 3),
    (["sh", "-c", "kill -9 $$"], 128 + 9),
    ([PYTHON, "-c", "raise SystemExit(7)"], 7),
    ([PYTHON, "-c", "1 / 0"], 1),
])
def test_the_commands_exit_code_is_passed_on(diagnose, command, code):
    assert diagnose("--", *command).returncode == code


def test_misuse_is_explained(diagnose, tmp_path):
    for arguments, words in [
        (["--", "no-such-program-here"], "cannot be started"),
        (["--run", tmp_path, "--", "true"], "one question"),
        ([tmp_path, "--", "true"], "DIR does not go with -- COMMAND"),
        (["--batch-size", 8, "--", "true"], "--batch-size does not go"),
        (["--duration", 3], "-- python train.py"),
        (["--source", tmp_path / "none", "--", "true"], "no such file"),
        (["--"], "-- python train.py"),
    ]:
        told = diagnose(*arguments)
        assert told.returncode == 2, told
        assert words in told.stderr


def test_programs_get_json_alone_and_the_commands_output_goes_to_stderr(diagnose):
    told = diagnose("--json", "--", PYTHON, "-c", "print('loss 1')")
    assert json.loads(told.stdout)["verdict"] == "unknown"
    assert "loss 1" in told.stderr


def test_the_users_own_sitecustomize_still_runs_and_nothing_else_is_seen(diagnose, python_file):
    own = python_file("import sys; sys.mine = 1", "own/sitecustomize.py")
    script = python_file("""
        import sys, threading, sitecustomize
        print(sys.mine, sitecustomize.__file__, threading.active_count(), [p for p in sys.path if "penstock-" in p])
        """)
    told = diagnose("--", PYTHON, script, environment={"PYTHONPATH": str(own.parent)})
    assert told.stdout.startswith(f"1 {own} 1 []\n"), told.stdout + told.stderr


def test_an_error_in_the_users_sitecustomize_is_told_as_without_us(diagnose, python_file):
    own = python_file("raise KeyError('mine')", "own/sitecustomize.py")
    told = diagnose("--", PYTHON, "-c", "print('goes on')", environment={"PYTHONPATH": str(own.parent)})
    assert told.stdout.startswith("goes on\n")
    assert "KeyError" in told.stderr


def test_children_that_fork_spawn_or_exec_work_as_ever(diagnose, python_file):
    script = python_file("""
        import multiprocessing, os, subprocess, sys

        def square(x):
            return x * x

        if __name__ == "__main__":
            for method in ("fork", "spawn"):
                with multiprocessing.get_context(method).Pool(2) as pool:
                    print(method, pool.map(square, range(4)))
            child = os.fork()
            if child == 0:
                sys.exit(5)
            print("fork", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            os.execv(sys.executable, [sys.executable, "-c", "print('exec')"])
        """)
    told = diagnose("--", PYTHON, script)
    assert told.stdout.splitlines()[:4] == ["fork [0, 1, 4, 9]", "spawn [0, 1, 4, 9]", "fork 5", "exec"], told.stderr
    assert told.returncode == 0


def test_much_output_and_input_go_through(diagnose):
    told = diagnose("--", PYTHON, "-c", "import sys; sys.stdout.write(sys.stdin.read() * 3)", input="x" * 1_000_000 + "\n")
    assert told.stdout.count("x") >= 3_000_000


def test_a_command_without_sampler_is_run_all_the_same(diagnose):
    told = diagnose("--", PYTHON, "-I", "-S", "-c", "print('alone')")
    assert told.stdout.startswith("alone\n")
    assert told.returncode == 0


ISOLATED = [PYTHON, "-I", "-S", "-c"]


def test_py_spy_looks_into_a_python_that_reads_no_sitecustomize(diagnose, python_file):
    script = python_file("""
        import time

        def load_clip(n):
            return sum(i * i for i in range(n))

        end = time.monotonic() + 5
        while time.monotonic() < end:
            load_clip(100000)
            time.sleep(0.002)
        """)
    told = json.loads(diagnose("--json", "--", *ISOLATED[:3], script).stdout)
    hottest = told["lines"][0]
    assert hottest["file"] == str(script) and hottest["doing"] == "input", told
    assert "return sum(" in hottest["text"]
    assert told["process"] != 0


def bare_python(folder, py_spy=None):
    """A Python without our packages, in a folder that has this script for py-spy, or none."""
    if py_spy:
        (folder / "py-spy").write_text(py_spy)
        (folder / "py-spy").chmod(0o755)
    (folder / "python3").symlink_to(os.path.realpath(PYTHON))
    return folder / "python3"


def test_without_py_spy_it_says_what_would_look_into_it(diagnose, tmp_path):
    bare = bare_python(tmp_path)
    told = diagnose("--", bare, *ISOLATED[1:], "import time; time.sleep(3)", environment={"PATH": "/usr/bin:/bin"})
    assert told.returncode == 0
    assert "pip install py-spy" in told.stdout


def test_a_py_spy_that_may_not_look_is_explained(diagnose, tmp_path):
    bare = bare_python(tmp_path, "#!/bin/sh\necho 'Permission Denied: Try running again with elevated permissions'\nexit 1\n")
    told = diagnose("--", bare, *ISOLATED[1:], "import time; time.sleep(3)")
    assert "ptrace_scope" in told.stdout


def test_a_broken_recording_costs_the_verdict_and_not_the_commands_exit_code(diagnose, tmp_path):
    bare = bare_python(tmp_path, '#!/bin/sh\nwhile [ "$1" != --output ]; do shift; done\necho "{" >"$2"\n')
    told = diagnose("--", bare, *ISOLATED[1:], "import time; time.sleep(3); raise SystemExit(7)")
    assert told.returncode == 7
    assert "is no recording" in " ".join(told.stdout.split())


def test_what_stands_in_the_sources_is_told_too(diagnose):
    source = ROOT / "bench/diagnose/tf_sync.py"
    told = diagnose("--source", source, "--", "true")
    assert told.returncode == 0
    assert "in the sources: 1 finding" in told.stdout
    assert "tf_sync.py:27" in told.stdout
    assert "host-sync-every-step" in told.stdout
    assert json.loads(diagnose("--json", "--source", source, "--", "true").stdout)["scan"]["files"] == 1


def test_duration_ends_the_command(diagnose):
    told = diagnose("--duration", 1, "--", PYTHON, "-c", "while True: pass")
    assert told.returncode == 0
    assert "No verdict" in told.stdout


def test_duration_ends_what_the_command_started_too(diagnose, tmp_path):
    number = tmp_path / "process"
    loop = f"import os, time; open({str(number)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    started = time.monotonic()
    told = diagnose("--duration", 2, "--", "sh", "-c", f'{PYTHON} -c "{loop}"; echo done')
    assert told.returncode == 0 and time.monotonic() - started < 40
    with pytest.raises(ProcessLookupError):
        os.kill(int(number.read_text()), 0)


def test_a_starter_that_ignores_its_children_does_not_matter():
    ignore = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    for command in ("diagnose", "monitor"):
        done = subprocess.run([PYTHON, "-c", ignore, BUILD / "penstock", command, "--", "sh", "-c", "exit 5"], capture_output=True, timeout=60)
        assert done.returncode == 5


WAITS = """
    import time
    try:
        print("ready", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        print("saved", flush=True)
        time.sleep(0.2)  # a second Ctrl-C would come now
        raise SystemExit(9)
    """


def test_an_interrupt_that_a_program_sends_is_passed_on(tmp_path, python_file):
    process = subprocess.Popen([BUILD / "penstock", "diagnose", "--", PYTHON, python_file(WAITS)], stdout=subprocess.PIPE,
                               text=True, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=60)[0]
    assert output.startswith("saved\n")
    assert "penstock diagnose" in output
    assert process.returncode == 9
    assert list(tmp_path.glob("penstock-*")) == []


def test_ctrl_c_reaches_the_command_once_and_the_page_comes_all_the_same(tmp_path, python_file):
    script = python_file(WAITS)
    process, terminal = pty.fork()
    if process == 0:
        os.environ["TMPDIR"] = str(tmp_path)
        os.execv(BUILD / "penstock", ["penstock", "diagnose", "--", PYTHON, str(script)])
    shown = b""
    while b"ready" not in shown:
        shown += os.read(terminal, 4096)
    os.write(terminal, b"\x03")
    try:
        while True:
            shown += os.read(terminal, 4096)
    except OSError:  # the terminal's other end is closed
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 9
    assert shown.count(b"saved") == 1
    assert b"Traceback" not in shown
    assert b"penstock diagnose" in shown
    assert list(tmp_path.glob("penstock-*")) == []


def test_a_killed_process_loses_at_most_a_second_of_its_samples(diagnose, python_file):
    script = python_file("""
        import os, signal, time, torch
        x, end = torch.randn(300, 300), time.monotonic() + 3
        while time.monotonic() < end:
            x = torch.tanh(x @ x)
        os.kill(os.getpid(), signal.SIGKILL)
        """)
    begun = time.monotonic()
    told = diagnose("--json", "--", PYTHON, script)
    result = json.loads(told.stdout)
    assert told.returncode == 128 + 9
    assert result["verdict"] == "healthy"
    assert 1.9 < result["training_s"] < time.monotonic() - begun
