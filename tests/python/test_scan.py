"""`penstock scan`: every file in tests/scan gives the findings that its comments expect, and no other."""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

import pytest

from conftest import BUILD, ROOT
from penstock.scan import RULES, scan_paths, scan_source
from penstock.scan.output import as_sarif

FILES = sorted((ROOT / "tests/scan").rglob("*.py"))
EXPECT = re.compile(r"#\s*expect:\s*(.+)$")
BAD = "import torch\nfor x in loader:\n    loss = model(x.cuda())\n    loss.backward()\n    torch.save(loss, 'x')\n"


def expected(path):
    """{(line, rule): level} of `# expect: rule, rule=level` comments; an empty level is any."""
    found = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = EXPECT.search(line)
        for part in match[1].split(",") if match else []:
            rule, _, level = part.strip().partition("=")
            assert rule in RULES, f"{path}:{number}"
            found[number, rule] = level
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT / "tests/scan")))
def test_a_file_gives_what_its_comments_expect(path):
    result = scan_source(path.read_bytes(), str(path))
    wanted = expected(path)
    assert {(f.line, f.rule) for f in result.findings} == wanted.keys()
    assert all(f.level == (wanted[f.line, f.rule] or f.level) for f in result.findings)
    assert result.notes == []


def test_there_are_150_files_in_three_frameworks_and_every_rule_is_in_them():
    assert len(FILES) >= 150
    assert {p.parent.name for p in FILES} == {"torch", "tensorflow", "jax"}
    expectations = [expected(path) for path in FILES]
    assert {rule for wanted in expectations for _, rule in wanted} == RULES.keys()
    assert sum(not wanted for wanted in expectations) >= 75, "files in which nothing may be found"


def test_columns_count_characters_and_lines_those_of_the_name_after_the_dot():
    (finding,) = scan_source("import torch\nfor x in y:\n    loss = model(x.cuda())\n    loss.backward()\n"
                             "    print('زیان', loss.item())\n").findings
    assert (finding.line, finding.column, finding.code) == (5, 19, "print('زیان', loss.item())")
    (finding,) = scan_source("import tensorflow as tf\nds = (\n    tf.data.TFRecordDataset(f)\n    .prefetch(1)\n    .batch(8)\n)\n").findings
    assert (finding.line, finding.column, finding.rule) == (4, 6, "prefetch-before-batch")


@pytest.mark.parametrize("text, reason", [
    (b"import torch\nx = (", "syntax error"),
    (b"import torch\n\0", "null bytes"),
    (b"import torch\n# \xff", "cannot be decoded"),
    (b"# coding: nope\nimport torch", "cannot be decoded"),
    (b"import torch\nx = " + b"-" * 50_000 + b"1", "too deeply nested"),
    (b"import torch\nx = " + b"+".join([b"a"] * 20_000), "too deeply nested"),
    (b"import torch\n" + b"(" * 500, "syntax error"),
    (b"import torch\nprint 1\n", "syntax error"),
    (b"import torch\n" + b"#" * 5_000_000, "larger than"),
])
def test_what_cannot_be_read_is_a_note(text, reason):
    result = scan_source(text, "x.py")
    assert result.findings == [] and len(result.notes) == 1 and reason in result.notes[0][1]


@pytest.mark.parametrize("text", [
    b"", b"\n", b"\xef\xbb\xbf" + BAD.encode(), BAD.replace("\n", "\r\n").encode(), BAD.replace("\n", "\r").encode(),
    b"# -*- coding: latin-1 -*-\nimport torch\nx = '\xff'\n", b"import torch\n\f\nx = 1\n", "import torch".encode("utf-16"),
])
def test_encodings_and_line_ends_are_read(text):
    result = scan_source(text, "x.py")
    assert result.notes == []
    assert [f.line for f in result.findings] == ([5] if b"torch.save" in text else [])


def test_damaged_sources_never_stop_it():
    """Random cuts of every file here: found or not, but never a fault of the scanner."""
    order = random.Random(7)
    for path in FILES:
        lines = path.read_text().splitlines(keepends=True)
        for _ in range(3):
            kept = [line for line in lines if order.random() < 0.85]
            order.shuffle(kept) if order.random() < 0.2 else None
            notes = scan_source("".join(kept), path.name).notes
            assert not any("fault" in why for _, why in notes), ("".join(kept), notes)


def test_a_comment_that_names_no_rule_is_said():
    (note,) = scan_source("import torch  # penstock: ignore[no-such-rule]\n", "x.py").notes
    assert note == ("x.py", "line 1: ignore[no-such-rule]: no such rule; --list-rules shows them")


def test_a_notebook_is_read_cell_by_cell():
    cells = [("markdown", "# training"), ("code", "%matplotlib inline\nimport torch\n!pip list"), ("code", "%%bash\nls"), ("code", BAD)]
    notebook = json.dumps({"nbformat": 4, "cells": [{"cell_type": kind, "source": text.splitlines(keepends=True)} for kind, text in cells]})
    (finding,) = scan_source(notebook, "x.ipynb").findings
    assert (finding.cell, finding.line, finding.rule) == (3, 5, "checkpoint-every-step")
    for broken in ('{"cells": 3, "a": "import torch"}', '["import torch"]', "import torch", '{"cells": [{"import torch": []}]}'):
        assert "is not a notebook" in scan_source(broken, "x.ipynb").notes[0][1]


@pytest.fixture
def project(tmp_path):
    for name in ("train.py", "tests/check.py", ".git/hook.py", "env/pyvenv.cfg", "env/lib.py", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(BAD)
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "again.py").symlink_to(tmp_path / "train.py")
    (tmp_path / "nowhere.py").symlink_to(tmp_path / "missing.py")
    return tmp_path


def test_folders_are_walked_without_environments_hidden_ones_and_loops(project, monkeypatch):
    monkeypatch.chdir(project)
    assert [f.path for f in scan_paths(["."]).findings] == ["./again.py", "./tests/check.py"]  # train.py is the same file
    assert [f.path for f in scan_paths(["."], exclude=["tests/*"]).findings] == ["./again.py"]
    assert [f.path for f in scan_paths(["env/lib.py", "env"]).findings] == ["env/lib.py"]


def test_many_processes_find_the_same():
    once, often = (scan_paths([str(ROOT / "tests/scan")], jobs=jobs) for jobs in (1, 3))
    assert once == often and once.files == len(FILES) and once.count("critical") > 20


def test_the_program_prints_findings_and_says_by_its_exit_code_that_one_is_critical(program, project):
    bad = program("scan", project / "train.py")
    assert bad.returncode == 1
    assert "5:5  critical  torch.save saves in each step  [checkpoint-every-step]" in bad.stdout
    assert all(f"\n      {label} " in bad.stdout for label in ("why", "costs", "instead"))
    assert bad.stdout.endswith("\n1 critical in 1 of 1 file\n")
    assert program("scan", ROOT / "tests/scan/torch/item_each_step.py").returncode == 0
    good = program("scan", ROOT / "tests/scan/torch/loader_good.py")
    assert (good.returncode, good.stdout) == (0, "nothing found in 1 file\n")
    assert program("scan", project / "train.py", "--ignore", "checkpoint-every-step").returncode == 0


def test_json_has_all_that_the_text_says(program, project):
    done = program("scan", project / "train.py", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 1 and found["counts"] == {"critical": 1, "warning": 0, "hint": 0}
    (finding,) = found["findings"]
    assert finding["line"] == 5 and finding["path"].endswith("train.py")
    assert all(finding[key] for key in ("rule", "level", "message", "why", "costs", "instead", "code"))


def test_sarif_names_rules_and_regions(program, project):
    done = program("scan", project / "train.py", "--sarif", project / "out.sarif")
    assert done.returncode == 1 and not (project / "out.sarif.part").exists()
    written = json.loads((project / "out.sarif").read_text())
    (run,) = written["runs"]
    (result,) = run["results"]
    assert written["version"] == "2.1.0" and [r["id"] for r in run["tool"]["driver"]["rules"]] == list(RULES)
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "checkpoint-every-step"
    assert result["level"] == "error" and result["message"]["text"]
    region = result["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 5, "startColumn": 5, "endLine": 5, "endColumn": 26, "snippet": {"text": "torch.save(loss, 'x')"}}
    uri = as_sarif(scan_source(BAD, "پوشه/a b.py"))["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri.endswith("/a%20b.py") and uri.isascii()


@pytest.mark.parametrize("arguments, said", [
    ([], "which file or folder?"), (["nowhere"], "no such file or folder"), ([".", "--ignore", "x"], "no such rule"),
    ([".", "--jobs", "0"], "--jobs"), ([".", "--what"], "--what"), (["cli", "--sarif", "no/such/folder/x"], "no/such/folder/x"),
])
def test_misuse_is_said(program, arguments, said):
    done = program("scan", *arguments, cwd=ROOT)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


def test_rules_are_listed_and_helped(program):
    listed = program("scan", "--list-rules")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(RULES)
    helped = program("scan", "--help")
    assert helped.returncode == 0 and "examples:" in helped.stdout and "--sarif" in helped.stdout


def test_it_needs_neither_the_native_module_nor_any_package(project):
    ran = subprocess.run([sys.executable, "-I", "-X", "importtime", str(ROOT / "python/penstock/scan"), "train.py"],
                         cwd=project, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1 and "torch.save saves" in ran.stdout
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in ran.stderr.splitlines()}
    assert "ast" in imported and imported.isdisjoint({"numpy", "torch", "penstock", "_penstock"})
    module = subprocess.run([sys.executable, "-m", "penstock.scan", "train.py"], cwd=project, capture_output=True, text=True,
                            timeout=60, check=False, env={**os.environ, "PYTHONPATH": str(BUILD / "python")})
    assert (module.returncode, module.stdout) == (1, ran.stdout)


def test_without_python_it_says_what_is_needed(program):
    done = program("scan", ".", env={"PATH": "/nonexistent"})
    assert done.returncode == 2 and "needs Python 3.9" in done.stderr


def test_an_interrupt_leaves_no_sarif_and_no_traceback(tmp_path):
    for i in range(400):
        (tmp_path / f"{i}.py").write_text(BAD * 400)
    started = subprocess.Popen([str(BUILD / "penstock"), "scan", str(tmp_path), "--jobs", "2", "--sarif", str(tmp_path / "x.sarif")],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    children = pathlib.Path(f"/proc/{started.pid}/task/{started.pid}/children")
    while len(children.read_text().split()) < 2:  # they are at work for many seconds
        time.sleep(0.01)
    os.killpg(started.pid, signal.SIGINT)
    _, said = started.communicate(timeout=60)
    assert started.returncode == 130 and said == "interrupted\n"
    assert not list(tmp_path.glob("x.sarif*"))


@pytest.mark.parametrize("page", ["docs/scan.md", "docs/fa/scan.md"])
def test_the_page_is_true(page, program, tmp_path):
    """Its output is what the program prints; each rule's first example is found, its second is clean."""
    text = (ROOT / page).read_text()
    blocks = re.findall(r"```(python|text)\n(.*?)```", text, re.DOTALL)
    (tmp_path / "train.py").write_text(blocks[0][1])
    assert program("scan", "train.py", cwd=tmp_path).stdout == blocks[1][1]
    imports, *examples = [code for kind, code in blocks[1:] if kind == "python"]
    sections = re.findall(r"^### (\S+) \((\S+)\)$", text, re.MULTILINE)
    assert [rule for rule, _ in sections] == list(RULES) and len(examples) == 2 * len(RULES)
    for (rule, level), bad, good in zip(sections, examples[::2], examples[1::2]):
        found = {f.rule: f.level for f in scan_source(imports + bad).findings}
        assert found[rule] == RULES[rule].level and level in (found[rule], {"critical": "بحرانی", "warning": "هشدار", "hint": "نکته"}[found[rule]])
        assert scan_source(imports + good).findings == []
