"""docs/training.md says what is so: its commands are understood and every field of a run's log is on it. The Persian page has the same commands."""
import json
import re
import shlex

import pytest

from conftest import BUILD
from pages import commands, page

PAGE = page("docs/training.md")


@pytest.mark.skipif(not (BUILD / "penstock-train").exists(), reason="built without LibTorch")
def test_its_settings_exist(penstock):
    asked = 0
    for line in commands(PAGE):
        program, command, *arguments = shlex.split(line)
        if program == "build/penstock" and command in ("train", "retrace"):
            shown = penstock(command, *arguments, "--print-config")
            assert shown.returncode == 0, (line, shown.stderr)
            asked += 1
    assert asked >= 3


@pytest.mark.skipif(not (BUILD / "penstock-train").exists(), reason="built without LibTorch")
def test_every_field_of_the_log_is_explained(penstock, tones, tmp_path):
    done = penstock("train", tones, "--run", tmp_path, "--steps", 2, "--batch-size", 2, "--shapes", "dynamic", "--max-mel-frames", 300,
                    "--val-fraction", 0.3, "--compute-threads", 1)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {line["kind"] for line in lines} >= {"step", "feed", "event"}
    assert {line["event"] for line in lines if "event" in line} >= {"start", "retrace", "validation"}
    words = {key for line in lines for key in line} | {line["kind"] for line in lines}
    words |= {line["event"] for line in lines if "event" in line} | {stage for line in lines for stage in line.get("stages", ())}
    assert not [word for word in words if f"`{word}`" not in PAGE]
    folder = PAGE.split("## The run's folder")[1].split("###")[0]
    assert {p.name for p in tmp_path.iterdir()} == set(re.findall(r"^\| `([\w.]+)", folder, re.MULTILINE))


def test_the_persian_page_has_commands_of_the_english_ones():
    english = {re.sub(r"data/[\w.-]+|runs/[\w.-]+", "DATA", line)
               for name in ("README.md", "docs/training.md", "docs/python.md") for line in commands(page(name))}
    persian = commands(page("docs/fa/README.md"))
    assert len(persian) >= 8
    for line in persian:
        if " say " not in line:  # another text
            assert re.sub(r"data/[\w.-]+|runs/[\w.-]+", "DATA", line) in english, line
