"""What the Python tests share: the built programs and small datasets, made once."""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build"))


@pytest.fixture(scope="session")
def penstock():
    """Runs the program: penstock("info", folder, ...) -> the finished process."""
    def run(*arguments, **options):
        command = [str(BUILD / "penstock"), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    return run


@pytest.fixture(scope="session")
def tones(penstock, tmp_path_factory):
    """A dataset of 40 clips; tests must not change it."""
    folder = tmp_path_factory.mktemp("data") / "tones"
    made = penstock("synth", folder, "--voice", "tone", "--clips", 40, "--speakers", 3)
    assert made.returncode == 0, made.stderr
    return folder
