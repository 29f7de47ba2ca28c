"""What the Python tests share: the built programs, small datasets, made once, and processes of their own."""
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build"))

# A shell's background job ignores Ctrl-C, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


@pytest.fixture(scope="session")
def penstock():
    """Runs the program: penstock("info", folder, ...) -> the finished process."""
    def run(*arguments, **options):
        command = [str(BUILD / "penstock"), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)
    return run


@pytest.fixture(scope="session")
def program(penstock):
    """The same for tests in which `penstock` is the package."""
    return penstock


@pytest.fixture(scope="session")
def tones(penstock, tmp_path_factory):
    """A dataset of 40 clips; tests must not change it."""
    folder = tmp_path_factory.mktemp("data") / "tones"
    made = penstock("synth", folder, "--voice", "tone", "--clips", 40, "--speakers", 3)
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture
def script(tmp_path):
    """Runs a script in a process of its own, which must end well: script(source, argument, ...) -> what it printed.

    `leaks`: threads are still at work at its end, or were left behind in a fork, and keep what they have.
    """
    def run(source, *arguments, environment=None, leaks=False, timeout=300):
        file = tmp_path / "script.py"
        file.write_text(textwrap.dedent(source))
        ran = subprocess.run([sys.executable, str(file), *map(str, arguments)], capture_output=True, text=True,
                             timeout=timeout, check=False,
                             env={**os.environ, "PENSTOCK_LEAK_WARNINGS": "1", **(environment or {})})
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert leaks or "nanobind: leaked" not in ran.stderr, ran.stderr
        return ran.stdout
    return run
