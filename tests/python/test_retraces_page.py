"""docs/python/retraces.md: its code runs, and prints what the page says, but for times. The Persian page has the same code."""
import contextlib
import io
import re
import sys

import pytest

from conftest import ROOT
from penstock.retrace import main

PAGES = {name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("python/retraces.md", "fa/retraces.md")}


def blocks(page):
    """(code, what it prints) in order."""
    return re.findall(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```)?", page, re.DOTALL | re.MULTILINE)


def without_times(text):
    text = re.sub(r"Step time: .*?ms", "Step time: T ms", text)
    return re.sub(r" +\d+\.\d+ (ms|s)\b|\(\d+\.\d+ s\)", " T", text).strip()


def test_the_code_of_the_page_prints_what_it_says(tmp_path, monkeypatch, tones):
    for framework in ("tensorflow", "torch", "jax"):
        pytest.importorskip(framework)
    sys.modules["torch"]._dynamo.reset()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "tones").symlink_to(tones)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    names = {}
    assert len(blocks(PAGES["python/retraces.md"])) == 7
    for number, (code, expected) in enumerate(blocks(PAGES["python/retraces.md"])):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            if code.startswith("# train.py"):
                (tmp_path / "train.py").write_text(code)
                command, expected = expected.split("\n", 1)
                assert main(command.split()[3:]) == 1
            else:
                file = tmp_path / f"block_{number}.py"  # dynamo reads the sources
                file.write_text(code)
                exec(compile(code, str(file), "exec"), names)
        assert without_times(out.getvalue()) == without_times(expected)


def test_the_persian_page_has_the_same_code():
    english, persian = (blocks(PAGES[name]) for name in ("python/retraces.md", "fa/retraces.md"))
    assert persian == english
