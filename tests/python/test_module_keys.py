"""Every key is an argument with a type and help, and what is checked in says so."""
import inspect
import os
import re
import subprocess
import sys
import textwrap

import pytest

import penstock
from conftest import ROOT
from penstock import _penstock
from penstock.keys import Keys, MelKeys


def test_what_is_made_from_the_module_is_current():
    pytest.importorskip("nanobind")
    ran = subprocess.run([sys.executable, str(ROOT / "python" / "generate.py"), "--check"], capture_output=True, text=True,
                         check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_help_shows_every_key():
    keys = _penstock.config_keys()
    assert len(keys) > 50
    for thing in (penstock.Feed, penstock.info):
        text = inspect.getdoc(thing)
        for key in keys:
            assert f"{key.name}: " in text, key.name
            assert " ".join(key.help.split())[:40] in " ".join(text.split()), key.name
    for name in MelKeys.__annotations__:
        assert f"{name}: " in inspect.getdoc(penstock.mel)
    assert {key.name for key in keys} == {*Keys.__annotations__, "dataset_path"}


def test_everything_public_has_a_docstring():
    for name in penstock.__all__:
        thing = getattr(penstock, name)
        if name != "__version__":
            assert inspect.getdoc(thing), name
        if inspect.isclass(thing) and not issubclass(thing, Exception):
            for member, value in vars(thing).items():
                if not member.startswith("_"):
                    assert inspect.getdoc(value), f"{name}.{member}"
    for name in penstock.cache.__all__:
        assert inspect.getdoc(getattr(penstock.cache, name)), name


def test_every_kind_of_value_is_what_its_annotation_says(tones):
    """A value of the annotated type is accepted by the key, for every key."""
    values = {"int": 4, "float": 0.5, "bool": True, "str": "cpu", "Path": tones, "int | str": 10**9,
              "str | Mapping[str, Path]": {"f0": tones}}
    special = {"n_fft": 2048, "win_length": 512, "hop_length": 128, "mel_fmax": 4000.0, "mel_power": 2, "sample_rate": 16000, "rank": 0}
    for name, annotation in Keys.__annotations__.items():
        kind = annotation.__forward_arg__
        value = special.get(name, values.get(kind))
        if value is None:
            value = re.findall(r"['\"](\w+)['\"]", kind)[0]  # a word of a Literal
        settings = penstock.settings.of(None, {name: value})
        assert settings.get(name), name


USER = '''
import numpy as np
from numpy.typing import NDArray
import penstock

feed = penstock.Feed("data", batch_size=16, shapes="dynamic", mel_log="db", extra={"f0": "f0"})
for batch in feed:
    mel: NDArray[np.float32] = batch.mel
    total: float = float(batch.mel.mean())
    names: list[str] = batch.ids
    rows: int = batch.shape[0]
state: dict[str, object] = feed.state()
spectrum: NDArray[np.float32] = penstock.mel(mel[0], preset="librosa", hop_length=128)
ids: NDArray[np.int32] = penstock.tokens("text", feed.symbols)
report = penstock.cache.build("data", only="mel", progress=lambda what, done, total: None)
'''

WRONG = {
    'penstock.Feed("data", batch_sise=3)': "batch_sise",
    'penstock.Feed("data", batch_size="many")': "batch_size",
    'penstock.Feed("data", split="test")': "split",
    'penstock.mel(mel, n_fft="512")': "n_fft",
    'penstock.mel(mel, batch_size=4)': "batch_size",
    'penstock.cache.build("data", mel_log="ln2")': "mel_log",
    'wrong: NDArray[np.int64] = batch.tokens': "wrong|Incompatible",
}


def test_a_type_checker_knows_the_package(tmp_path):
    pytest.importorskip("mypy")
    file = tmp_path / "user.py"
    lines = USER.rstrip("\n").split("\n") + list(WRONG)
    file.write_text("\n".join(lines) + "\n")
    ran = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--no-error-summary", f"--cache-dir={tmp_path}", str(file)],
                         capture_output=True, text=True, check=False,
                         env={**os.environ, "MYPYPATH": str(ROOT / "python")})
    errors = [line for line in ran.stdout.splitlines() if f"{file.name}:" in line and ": error:" in line]
    first = len(lines) - len(WRONG) + 1
    found = {int(line.split(":")[1]) for line in errors}
    assert found == set(range(first, len(lines) + 1)), ran.stdout


def test_importing_is_quick_and_brings_no_framework():
    """What is imported decides how long it takes; the time itself depends on the machine."""
    source = textwrap.dedent("""
        import sys
        import penstock
        heavy = {"numpy", "torch", "jax", "tensorflow", "typing_extensions", "asyncio", "multiprocessing"}
        assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
    """)
    subprocess.run([sys.executable, "-c", source], check=True)
