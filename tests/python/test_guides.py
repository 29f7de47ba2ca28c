"""The guides in docs/ say what is so: every command and all code of them run, every message is one of the program's, the Persian ones have the same."""
import html
import importlib.util
import os
import re
import subprocess
import sys

import pytest

from conftest import BUILD, ROOT
from pages import commands, page, python_blocks

GUIDES = ["quick_start", "oscillation", "retracing", "cache", "gpus", "troubleshooting"]
FILES = ["train.py", "loop.py", "fixed.py"]  # code that a page has the reader save, told by what it defines
NEEDS = {"oscillation": ["torch"], "retracing": ["tensorflow", "jax"]}
TRAINER = re.compile(r"build/penstock (train|retrace data)")
WITH_EXIT_CODE = re.compile(r"^    (\S.*?)(?: +# exit code (\d))?$", re.MULTILINE)


def lines_of(text):
    """Every indented line of code with the exit code that the page promises."""
    outside = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [(line, int(code or 0)) for line, code in WITH_EXIT_CODE.findall(outside)]


def few(line):
    """The trainer's commands with the least that there is to compute."""
    line = re.sub(r"--steps \d+", "--steps 2", re.sub(r"--batch-size \d+", "--batch-size 2", line))
    return f"{line} --max-mel-frames 200 --compute-threads 1"


def run(line, place):
    python = f"{BUILD / 'python'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    path = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": python, "PATH": path, "PENSTOCK_PYTHON": sys.executable, "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.run(["bash", "-c", line], cwd=place, env=environment, capture_output=True, text=True, timeout=300, check=False)


def run_all(text, place):
    """The commands of a page, in its order. [(command, what it printed)]."""
    said = []
    for line, code in lines_of(text):
        if line.startswith("./run"):  # installs and builds: this test would not be here without it
            assert re.search(rf"^  (\w+ \| )?{line.split()[1]}\b.*\)", page("run"), re.MULTILINE), line
            continue
        if TRAINER.match(line):
            if not (BUILD / "penstock-train").exists():
                continue
            line = few(line)
        if " tune " in line:
            line += " --seconds 0.1 --no-verify"
        done = run(line, place)
        found = {0, 1} if re.match(r"build/penstock (diagnose|monitor)\b", line) and code == 0 else {code}  # the machine may be busy
        assert done.returncode in found, (line, done.stdout[-2000:], done.stderr[-2000:])
        said.append((line, done.stdout + done.stderr))
    return said


def save_files(text, place):
    """Saves the code that the page gives a file's name before it, and returns the rest."""
    rest = []
    for block in python_blocks(text):
        name = re.findall(r"`(\w+\.py)`", text[: text.index(block)])
        if "def main():" in block:
            assert name[-1] in FILES
            (place / name[-1]).write_text(block, encoding="utf-8")
        else:
            rest.append(block)
    return rest


def prepared(folder):
    folder.mkdir()
    (folder / "build").symlink_to(BUILD)
    (folder / "configs").symlink_to(ROOT / "configs")
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder in which somebody has followed the quick start as far as its dataset and its cache."""
    folder = prepared(tmp_path_factory.mktemp("guides") / "place")
    for line, _ in lines_of(page("docs/quick_start.md")):
        if re.search(r" synth | cache build ", line):
            done = run(line, folder)
            assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.long
def test_the_quick_start_runs_from_nothing(tmp_path):
    folder = prepared(tmp_path / "place")
    text = page("docs/quick_start.md")
    said = run_all(text, folder)
    assert any("AU" in output for line, output in said if " diagnose " in line)
    assert (folder / "feed.html").exists() and (folder / "tuned.yaml").exists()
    (folder / "code.py").write_text("".join(python_blocks(text)), encoding="utf-8")
    done = run("python code.py", folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_the_dataset_of_the_persian_quick_start_can_be_made(tmp_path):
    folder = prepared(tmp_path / "place")
    lines = [line for line, _ in lines_of(page("docs/fa/quick_start.md")) if re.search(r" synth | info | cache build ", line)]
    assert len(lines) == 3
    for line in lines:
        done = run(line, folder)
        assert done.returncode == 0, (line, done.stderr)


@pytest.mark.parametrize("name", [pytest.param("oscillation", marks=pytest.mark.long), *(g for g in GUIDES[1:] if g != "oscillation")])
def test_every_command_runs(name, place):
    for module in NEEDS.get(name, []):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"without {module}")
    text = page(f"docs/{name}.md")
    blocks = save_files(text, place)
    said = run_all(text, place)
    for i, block in enumerate(blocks):
        (place / f"code{i}.py").write_text(block, encoding="utf-8")
        done = run(f"python code{i}.py", place)
        assert done.returncode == 0, (block, done.stderr[-2000:])
    everything = "".join(output for _, output in said)
    for shown in re.findall(r"^(?:penstock: |skipped |PROBLEM: |OK: ).*$", text, re.MULTILINE):  # what may not differ from machine to machine
        assert shown in everything, (shown, everything)


@pytest.mark.parametrize("name", ["docs/troubleshooting.md", "docs/fa/troubleshooting.md"])
def test_every_message_is_one_of_the_program(name):
    sources = [path.read_text(encoding="utf-8") for folder in ("penstock", "cli", "train") for path in (ROOT / folder).rglob("*.cpp")]
    literals = re.sub(r'"\s*\n\s*"', "", "\n".join(sources))
    messages = [html.unescape(m) for m in re.findall(r'^### (?:`|<code dir="ltr">)(.*?)(?:`|</code>)$', page(name), re.MULTILINE)]
    assert len(messages) > 20
    for message in messages:
        for part in message.split("…"):
            assert part.strip(" ?'():,") in literals, message


def test_the_table_of_gpus_has_the_numbers_of_the_files():
    for text in (page("docs/gpus.md"), page("docs/fa/gpus.md")):
        rows = re.findall(r"^\| .* `(configs/\w+\.yaml)` \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
        assert {row[0] for row in rows} == {f"configs/{file.name}" for file in (ROOT / "configs").glob("*.yaml")}
        for file, *numbers in rows:
            keys = ("batch_size", "num_workers", "prefetch_buffer_size", "gradient_accumulation_steps")
            assert numbers == [re.search(rf"^{key}: (\d+)$", page(file), re.MULTILINE).group(1) for key in keys], file


@pytest.mark.parametrize("name", GUIDES)
def test_the_persian_guide_has_the_same_commands_code_and_links(name):
    english, persian = page(f"docs/{name}.md"), page(f"docs/fa/{name}.md")

    def same(text):
        return text.replace("data/fa", "data/en").replace(" --voice fa", "").replace(" --lang fa", "")

    assert [(same(line), code) for line, code in lines_of(persian)] == lines_of(english)
    assert [same(block) for block in python_blocks(persian)] == python_blocks(english)
    assert re.findall(r"^#+", persian, re.MULTILINE) == re.findall(r"^#+", english, re.MULTILINE)
    assert persian.count('<div dir="rtl">') == persian.count("</div>") > 0


def test_links_of_the_guides_lead_somewhere():
    for folder in ("docs", "docs/fa"):
        for name in GUIDES:
            for link in re.findall(r"\]\(([^)#:]+)[^)]*\)", page(f"{folder}/{name}.md")):
                assert (ROOT / folder / link).exists(), (folder, name, link)


def test_commands_named_in_a_sentence_exist(penstock):
    named = {command for name in GUIDES for command in re.findall(r"`penstock (\w+)", page(f"docs/{name}.md"))}
    listed = penstock("--help").stdout
    assert named and not [command for command in named if not re.search(rf"^  {command} ", listed, re.MULTILINE)]
    assert commands(page("docs/quick_start.md"))
