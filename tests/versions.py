#!/usr/bin/env python3
"""The module under other versions of Python: `versions.py` for all that this machine has, `versions.py oldest` for one.

Each interpreter gets a folder in build/versions with an environment of its own (NumPy, soundfile, pytest and nanobind, no framework), in which the
module is compiled, linked with the library of build/, and tested. Prints a line for each; the exit code is 1 when one failed."""

import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
MINORS = range(9, 20)  # of Python 3
NANOBIND = re.search(r'"(nanobind==[\d.]+)"', (ROOT / "pyproject.toml").read_text())[1]
PACKAGES = f"{NANOBIND}\nnumpy\npytest\nsoundfile\n"
TESTS = sorted([*ROOT.glob("tests/python/test_module*.py"), *ROOT.glob("tests/python/test_py_*.py")])
USABLE = (  # it runs, makes environments, and has its headers
    "import ensurepip, os, sys, sysconfig; assert os.path.exists(sysconfig.get_path('include') + '/Python.h'); "
    "print(*sys.version_info[:2], sep='.')"
)


def run(*words, **variables):
    """The output of a command that must succeed."""
    return subprocess.run(
        [str(word) for word in words],
        cwd=ROOT,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    ).stdout


def usable(program, version):
    try:
        return run(program, "-c", USABLE) == f"{version}\n"
    except (OSError, subprocess.CalledProcessError):
        return False


def interpreters():
    """{version: program}, the oldest first: on PATH, or among pyenv's."""
    pyenv = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    found = {}
    for version in (f"3.{minor}" for minor in MINORS):
        places = [shutil.which(f"python{version}"), *sorted(glob.glob(f"{pyenv}/versions/*/bin/python{version}"))]
        if program := next((p for p in places if p and usable(p, version)), None):
            found[version] = program
    return found


def make_environment(folder, program):
    """The packages, once: later runs need no network."""
    stamp = folder / "installed"
    if not stamp.exists() or stamp.read_text() != PACKAGES:
        run(program, "-m", "venv", "--clear", folder)
        run(folder / "bin/python", "-m", "pip", "install", "--disable-pip-version-check", *PACKAGES.split())
        stamp.write_text(PACKAGES)


def build_and_test(folder, program):
    """The last line of the tests."""
    make_environment(folder / "venv", program)
    python = folder / "venv/bin/python"
    options = {"PYTHON": "ON", "TESTS": "OFF", "BENCH": "OFF", "BUILT": BUILD}
    settings = [f"-DPENSTOCK_{name}={value}" for name, value in options.items()]
    run("cmake", "-G", "Ninja", "-S", ROOT, "-B", folder, f"-DPython_EXECUTABLE={python}", *settings)
    run("cmake", "--build", folder)
    tested = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS, PYTHONPATH=str(folder / "python"))
    return tested.splitlines()[-1]


def main(arguments):
    found = list(interpreters().items())
    if not found or not TESTS:
        sys.exit("there is no interpreter with headers and venv, or there are no tests for it")
    failed = False
    for version, program in found[:1] if arguments == ["oldest"] else found:
        try:
            print(f"Python {version}: {build_and_test(BUILD / 'versions' / version, program)}", flush=True)
        except subprocess.CalledProcessError as error:
            failed = True
            print(f"Python {version}: failed: {error.cmd}\n{error.stdout[-5000:]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
