#!/usr/bin/env python3
"""Who may include whom: stages meet in core/ and feed/, never each other; LibTorch in train/ alone."""
import pathlib
import re
import sys

STAGES = {"source", "decode", "features", "cache", "plan", "device", "monitor", "synth"}
FEED = {"core", "feed"} | STAGES - {"synth"}
LIBRARY = FEED | {"synth"}
ALLOWED = {
    "penstock/core": {"core"},
    **{f"penstock/{stage}": {"core", stage} for stage in STAGES},
    "penstock/feed": FEED,
    "cli": LIBRARY | {"cli"},
    "python": LIBRARY | {"python"},
    "train": FEED | {"train"},
    "examples": FEED | {"train", "examples"},
}
PROGRAM = {"cli"}  # flags, signals and bars are the same in every program
BESIDES = {
    "train/main.cpp": PROGRAM | {"synth"},  # say writes a WAV file, and synth/ has the encoder
    "train/program.h": PROGRAM,
    "train/console.cpp": PROGRAM,
    "examples/ctc/main.cpp": PROGRAM,
}
LIBTORCH = {"train", "examples"}

root = pathlib.Path(__file__).parent.parent


def targets(line):
    """What a line includes: folders of ours, and LibTorch."""
    if re.match(r"#include <(torch|ATen|c10)/", line):
        return ["LibTorch"]
    return re.findall(r'#include "(?:penstock/)?(\w+)/', line)


def wrong(folder, allowed, file):
    name = str(file.relative_to(root))
    allowed = allowed | BESIDES.get(name, set()) | {"hwy"} | ({"LibTorch"} if folder in LIBTORCH else set())
    for number, line in enumerate(file.read_text().splitlines(), 1):
        for target in targets(line):
            if target not in allowed:
                yield f"{name}:{number}: {folder}/ must not include {target}"


files = [(folder, allowed, file) for folder, allowed in ALLOWED.items() for file in (root / folder).rglob("*.[hc]*")
         if file.suffix in (".h", ".cpp")]
gone = [f"{name}: has an exception here, but is no file" for name in BESIDES if not (root / name).exists()]
sys.exit("\n".join(gone + [line for each in files for line in wrong(*each)]) or 0)
