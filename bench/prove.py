#!/usr/bin/env python3
"""Measures every bar and writes docs/evidence.md: `prove.py list`, `prove.py NAME...`, or `prove.py` for all of them.

A proof is a generator of lines (what, bar, figure, met or missed) that runs its commands through a Shell; each subject's are in a file of
their own, prove_*.py. The exit code is 1 when a bar was missed."""
import importlib
import subprocess
import sys

import evidence
from evidence import judged
from proving import DOCUMENT, PROOFS, Shell

for subject in ("feed", "cache", "device", "train", "python", "guard", "loop", "diagnose", "diagnose_command", "monitor", "scan", "tests", "fresh"):
    importlib.import_module(f"prove_{subject}")  # the document has this order


def prove(name):
    """Runs one proof, writes its section, and says whether every bar was met. A proof that cannot be run is a missed one."""
    title, function = PROOFS[name]
    print(f"── {name}: {title}", flush=True)
    shell, lines = Shell(), []
    try:
        for line in function(shell):
            lines.append(line)
            print(f"   {line.what:<60} {line.bar:<22} {line.figure}  {line.verdict}", flush=True)
    except (OSError, RuntimeError, subprocess.CalledProcessError, LookupError, ValueError) as error:
        print(f"   {error}", file=sys.stderr)
        lines.append(judged("the proof itself", "runs to its end", "it did not", False))
    evidence.replace_section(DOCUMENT, name, evidence.section(name, title, shell.typed, lines, shell.closing), PROOFS)
    return all(line.verdict != evidence.MISSED for line in lines)


def main(names):
    if names == ["list"]:
        for name, (title, _) in PROOFS.items():
            print(f"{name:<17} {title}")
        return 0
    if unknown := [name for name in names if name not in PROOFS]:
        print(f"no proof is called {', '.join(unknown)}; there are {', '.join(PROOFS)}", file=sys.stderr)
        return 2
    met = [prove(name) for name in names or PROOFS]
    print(f"{sum(met)} of {len(met)} proofs met every bar; see docs/{DOCUMENT.name}")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
