"""penstock-train-cuda where there is no GPU: it is linked, starts, computes on the CPU, and says what is missing."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from conftest import BUILD
from test_train_cli import SHORT, course

CUDA = BUILD / "penstock-train-cuda"
pytestmark = pytest.mark.skipif(not CUDA.exists(), reason="built without LibTorch, or its package has no CUDA")
without_gpu = pytest.mark.skipif(bool(list(pathlib.Path("/dev").glob("nvidia[0-9]*"))), reason="there is a GPU")


def needed(program):
    """The libraries that it names itself."""
    shown = subprocess.run(["readelf", "-d", str(program)], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"\(NEEDED\).*\[(.*?)\]", shown))


def run(*arguments):
    return subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=300)


def test_one_program_links_cuda_and_the_other_does_not():
    libraries = {"libtorch_cuda.so", "libc10_cuda.so"}
    assert needed(CUDA) >= libraries
    assert not needed(BUILD / "penstock-train") & libraries


def test_it_starts_and_trains_on_the_cpu_as_the_other_program(tones, tmp_path):
    assert "Examples" in run(CUDA, "train", "--help").stdout
    for program in ("penstock-train", "penstock-train-cuda"):
        done = run(BUILD / program, "train", tones, "--run", tmp_path / program, "--steps", 2, *SHORT)
        assert done.returncode == 0, done.stderr
    assert course(tmp_path / "penstock-train-cuda") == course(tmp_path / "penstock-train")


@without_gpu
def test_device_cuda_is_the_cuda_programs_and_says_what_is_missing(penstock, tones, tmp_path):
    (tmp_path / "cuda.yaml").write_text("device: cuda\n")
    for command in ("train", "retrace"):
        for device in (("--device", "cuda"), ("--device=cuda:0",), ("--config", tmp_path / "cuda.yaml")):
            done = penstock(command, tones, *device, *SHORT)
            assert done.returncode == 2 and "LibTorch finds no driver or no CUDA device" in done.stderr, done.stderr


def test_without_the_cuda_program_the_other_says_what_to_build(tones, tmp_path):
    shutil.copy(BUILD / "penstock-train", tmp_path)
    done = subprocess.run([tmp_path / "penstock-train", "train", tones, "--device", "cuda"], capture_output=True, text=True,
                          env=os.environ | {"PATH": str(tmp_path)})
    assert done.returncode == 2 and "device cuda needs penstock-train-cuda" in done.stderr, done.stderr
    assert "./run build" in done.stderr
