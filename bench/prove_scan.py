"""The proof of `penstock scan`: its files of good and bad code, and the installed packages against findings that were judged by reading."""
import json
import pathlib
import re
import sys
import sysconfig

from evidence import Line, at_least, below, judged
from proving import PYTHON, ROOT, proof

JUDGED = ROOT / "tests/scan/judged.json"  # {file, line, rule, code, verdict: true | false, reason}, made with what requirements.txt names


def key(finding):
    return finding["file"], finding["rule"], finding["code"]


@proof("what starves a device, found in Python sources")
def scan(shell):
    tests = shell.attempt(sys.executable, "-m", "pytest", "-q", "tests/python/test_scan.py", env=PYTHON)
    files = list((ROOT / "tests/scan").rglob("*.py"))
    expected = sum(len(re.findall(r"# expect:", path.read_text())) for path in files)
    yield at_least("small files, good and bad, in three frameworks", len(files), 150, digits=0)
    yield judged(f"findings in them: {expected} expected, each at its line, and no other", "all tests pass",
                 tests.stdout.strip().splitlines()[-1].strip("= "), tests.returncode == 0)
    packages = pathlib.Path(sysconfig.get_path("purelib"))
    found = json.loads(shell(sys.executable, "bench/scan_packages.py", packages.relative_to(ROOT) if packages.is_relative_to(ROOT) else packages))
    verdicts = {key(entry): entry["verdict"] for entry in json.loads(JUDGED.read_text())}
    findings = found["findings"] + found["example_findings"]
    unknown = [f for f in findings if key(f) not in verdicts]
    false = [f for f in findings if verdicts.get(key(f)) is False]
    yield Line("files of the installed packages, and examples in the documentation of torch, tensorflow, keras, jax, librosa, lhotse, "
               "lightning and torchmetrics", "", f"{found['files']:,} and {found['examples']:,}")
    yield Line("findings in the files, and in the examples", "", f"{len(found['findings'])} and {len(found['example_findings'])}")
    yield judged("findings that nobody has looked at", "0", str(len(unknown)), not unknown)
    yield below("false ones among them", 100 * (len(false) + len(unknown)) / max(1, len(findings)), 5, " %", digits=0)
    yield judged("files on which it fell over", "0", str(len(found["faults"])), not found["faults"])
    yield below(f"{found['timed']:,} of the files", found["seconds"], 60, " s", digits=1)
