#!/usr/bin/env python3
"""Scans the Python packages of an environment, and the examples in their documentation: `scan_packages.py FOLDER` prints JSON.

An example is what a docstring shows after >>>, between ``` or, indented, after ::. It is scanned with the usual imports before it: idiomatic
code by the frameworks' own authors. Findings are {file, line, rule, code}; an example's line is that of its docstring."""
import ast
import contextlib
import doctest
import json
import pathlib
import re
import sys
import textwrap
import time
from concurrent.futures import ProcessPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python/penstock"))
import scan  # the package alone: no native module

PACKAGES = "torch tensorflow keras jax librosa lhotse lightning torchmetrics".split()  # whose documentation is read
TIMED = 5_000  # files, taken evenly from all
IMPORTS = """import jax
import jax.numpy as jnp
import keras
import librosa
import numpy as np
import soundfile as sf
import tensorflow as tf
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader
"""


def examples(text):
    """The pieces of code in a docstring."""
    found = re.findall(r"```(?:python)?\n(.*?)```", text, re.DOTALL) + re.findall(r"::\n\n((?: +[^\n]*\n|\n)+)", text)
    for piece in [text, *map(textwrap.dedent, found)]:
        if ">>>" not in piece:
            if piece is not text:
                yield piece
            continue
        with contextlib.suppress(ValueError):  # its indentation is not a doctest's
            yield "".join(example.source for example in doctest.DocTestParser().get_examples(piece))


def scan_examples(path):
    """How many examples a file's docstrings have, and the findings in them."""
    try:
        strings = [n for n in ast.walk(ast.parse(path.read_bytes())) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    except (SyntaxError, ValueError):
        return 0, []
    found, count = [], 0
    for string in strings:
        for code in examples(string.value) if len(string.value) > 80 else ():
            count += 1
            found += [(string.lineno, finding) for finding in scan.scan_source(IMPORTS + code, str(path)).findings]
    return count, found


def main(folder):
    every = sorted(map(str, folder.rglob("*.py")))
    some = every[:: max(1, len(every) // TIMED)][:TIMED]
    start = time.monotonic()
    scan.scan_paths(some)
    seconds = time.monotonic() - start
    result = scan.scan_paths([str(folder)])

    def entry(finding, line):
        path = pathlib.Path(finding.path).relative_to(folder).as_posix()
        return {"file": path, "line": line, "rule": finding.rule, "code": finding.code}

    files = sorted(p for package in PACKAGES for p in (folder / package).rglob("*.py"))
    with ProcessPoolExecutor() as pool:
        documented = list(pool.map(scan_examples, files, chunksize=16))
    print(json.dumps({
        "files": result.files,
        "timed": len(some),
        "seconds": seconds,
        "faults": [why for _, why in result.notes if "fault" in why or "crashed" in why],
        "unreadable": len(result.notes),
        "findings": [entry(f, f.line) for f in result.findings],
        "examples": sum(count for count, _ in documented),
        "example_findings": [entry(f, line) for _, found in documented for line, f in found],
    }))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
