"""docs/python/starving.md: its code runs, and the Persian page has the same."""
import json
import re

import pytest

from conftest import ROOT

pytestmark = pytest.mark.alone

PAGES = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("python/starving.md", "fa/starving.md")]


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def test_the_code_of_the_page_runs(tmp_path, monkeypatch, capsys):
    code = blocks(PAGES[0], "python")
    assert len(code) == 3
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in code:
        exec(compile(block, "docs/python/starving.md", "exec"), names)
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(r"spectra is \d+% of the wait", shown)  # whatever the machine does beside it
    log = (tmp_path / "runs/blocks/log.jsonl").read_text().splitlines()
    steps = [json.loads(line) for line in log if '"kind":"step"' in line]
    assert [(step["step"], step["epoch"]) for step in steps] == [(1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 1), (7, 1), (8, 1)]


def test_the_persian_page_has_the_same_code_and_output():
    for language in ("python", "text"):
        assert blocks(PAGES[1], language) == blocks(PAGES[0], language) != []
