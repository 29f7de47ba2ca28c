"""The wheel in an environment of its own, as somebody has it who only installs: no compiler, no library of this system."""

import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

from conftest import ROOT

DOWNLOADED = pathlib.Path(sys.prefix) / "wheels"  # NumPy's, so that no network is needed
SYSTEM = re.compile(r"lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so\.\d|/lib64/ld-linux-[\w-]+\.so\.\d")


def run(*words, **options):
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=600, check=False, **options
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def wheel():
    """The file that PENSTOCK_WHEEL names, or a new one of these sources."""
    if "PENSTOCK_WHEEL" not in os.environ:
        run(ROOT / "run", "wheel")
    (file,) = ROOT.glob(os.environ.get("PENSTOCK_WHEEL", "build/wheel/*.whl"))
    return file


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """installed("python", ...) runs a program of the environment that has the wheel, and nothing of the system's on its PATH."""
    folder = tmp_path_factory.mktemp("wheel") / "venv"
    run(sys.executable, "-m", "venv", folder)
    bare = {"PATH": str(folder / "bin"), "HOME": str(folder)}
    run(folder / "bin/python", "-m", "pip", "install", "--no-index", "--find-links", DOWNLOADED, wheel, env=bare)

    def program(name, *words):
        return run(folder / "bin" / name, *words, env=bare, cwd=folder)

    program.folder = folder
    return program


def binaries(folder):
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.read_bytes()[:4] == b"\x7fELF")


def test_its_name_says_which_glibc_it_needs(wheel):
    python = f"cp3{sys.version_info.minor}"
    assert re.fullmatch(rf"penstock-[\d.]+-{python}-{python}-manylinux_2_\d+_\w+\.whl", wheel.name)
    assert int(re.search(r"manylinux_2_(\d+)", wheel.name)[1]) <= int(
        os.confstr("CS_GNU_LIBC_VERSION").rpartition(".")[2]
    )
    shown = run(pathlib.Path(sys.prefix) / "bin/auditwheel", "show", wheel)
    assert re.search(r"manylinux_2_\d+", wheel.name)[0] in shown


def test_it_has_the_package_the_types_and_the_program(wheel):
    files = {info.filename: info for info in zipfile.ZipFile(wheel).infolist()}
    package = {
        p.relative_to(ROOT / "python").as_posix() for p in (ROOT / "python/penstock").rglob("*.py*") if p.is_file()
    }
    package = {name for name in package if "__pycache__" not in name}
    assert package <= files.keys() and "penstock/py.typed" in files
    assert files["penstock/bin/penstock"].external_attr >> 16 & 0o111, "the program may not be executed"
    metadata = next(name for name in files if name.endswith("dist-info/METADATA"))
    text = zipfile.ZipFile(wheel).read(metadata).decode()
    assert "Requires-Python: >=3.9" in text and "Requires-Dist: numpy" in text
    assert [f"Provides-Extra: {name}" in text for name in ("torch", "tensorflow", "jax")] == [True] * 3


def test_only_glibc_and_the_compilers_runtime_come_from_the_system(installed):
    package = next(installed.folder.glob("lib/python*/site-packages/penstock"))
    own = [*binaries(package), *binaries(package.with_name("penstock.libs"))]
    assert package / "bin/penstock" in own and any("libsndfile" in binary.name for binary in own)
    for binary in own:
        listed = run("ldd", binary, env={"PATH": os.environ["PATH"]})
        for name, place in re.findall(r"^\s*(\S+) => (.+?)(?: \(0x\w+\))?$", listed, re.MULTILINE):
            inside = package.parent in pathlib.Path(place).resolve().parents
            assert inside or SYSTEM.fullmatch(name), f"{binary.name} takes {name} from {place}"


def test_the_program_and_the_package_work(installed):
    version = installed("penstock", "--version").strip()
    assert installed("python", "-m", "penstock", "--version").strip() == version
    installed("penstock", "synth", "tones", "--voice", "tone", "--clips", 24, "--speakers", 2)
    assert "24 clips" in installed("penstock", "info", "tones")
    code = (
        "import penstock; batch = next(iter(penstock.Feed('tones', batch_size=4, shapes=2, split='all')));"
        "print(penstock.__version__, batch.mel.shape[0], batch.mel_lengths.min() > 0, len(batch.ids))"
    )
    assert installed("python", "-c", code).split() == [version, "4", "True", "4"]
