"""The front door where something is missing: what it says, and what is the last thing on the screen."""
import os
import shutil
import subprocess

import pytest

from conftest import ROOT

TOOLS = "bash nproc dirname tr grep mkdir cat df awk tail cmp sed cut python3".split()


@pytest.fixture
def run(tmp_path):
    """run("build", apt_get="exit 100", id="echo 0") -> the finished process: `./run build` in a folder of its own, where no package is installed and the
    given programs are what is given."""
    shutil.copy(ROOT / "run", tmp_path / "run")
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))

    def start(command, **programs):
        for name, body in {"dpkg_query": "exit 1", **programs}.items():
            file = tmp_path / "bin" / name.replace("_", "-")
            file.write_text(f"#!/bin/bash\n{body}\n")
            file.chmod(0o755)
        return subprocess.run([tmp_path / "run", command], env={**os.environ, "PATH": str(tmp_path / "bin")}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    return start


def test_without_root_and_sudo_there_is_a_line_for_an_administrator(run):
    done = run("demo", id="echo 1000", apt_get="echo must not be called")
    lines = done.stdout.splitlines()
    assert done.returncode == 1 and "must not" not in done.stdout
    assert any(line.startswith("  apt-get install --no-install-recommends cmake ninja-build ") for line in lines)
    assert lines[-1] == "── failed: packages (exit code 1). The same command goes on from here."


def test_sudo_is_asked_where_there_is_no_root(run):
    done = run("demo", id="echo 1000", apt_get="exit 0", sudo='echo "sudo $*" >&2; exit 1')
    assert done.returncode == 1 and "failed: packages" in done.stdout.splitlines()[-1]
    assert "sudo env DEBIAN_FRONTEND=noninteractive apt-get install" in done.stdout


def test_what_failed_is_the_last_thing_with_its_log(run, tmp_path):
    done = run("demo", id="echo 0", apt_get='echo "E: Failed to fetch, no such host" >&2; exit 100')
    lines = done.stdout.splitlines()
    assert done.returncode == 1 and any("is there a network?" in line for line in lines)
    assert "E: Failed to fetch, no such host" in done.stdout
    assert lines[-1].startswith("── failed: packages (exit code 1); all of its output: build/logs/apt.log.")
    assert (tmp_path / "build/logs/apt.log").exists()


def test_it_says_what_it_can_do(run):
    done = run("help")
    assert done.returncode == 2
    assert {line.split()[1] for line in done.stdout.splitlines()[1:]} == {"demo", "test", "prove", "fresh", "build", "wheel", "format"}
