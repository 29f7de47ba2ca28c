#!/usr/bin/env python3
"""What clang-tidy has to look at: `tidy_todo.py STAMPS PATTERN` prints `FILE STAMP` for each file that is compiled, has a name that matches, and
has changed since STAMP (or a header has, or .clang-tidy). A file that CMake made of several counts as changed when one of them has."""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def sources(file):
    """What somebody wrote of it: CMake's file of several only includes them, and is made anew by each configuration."""
    if file.suffix != ".cxx":
        return [file]
    return map(pathlib.Path, re.findall(r'^#include "(.*\.cpp)"', file.read_text(), re.MULTILINE))


def newest(files):
    return max(file.stat().st_mtime for file in files)


def main(stamps, pattern):
    folders = ("penstock", "cli", "train", "python", "bench", "examples", "tests")
    headers = newest([ROOT / ".clang-tidy", *(h for f in folders for h in (ROOT / f).rglob("*.h"))])
    for command in json.loads((ROOT / "build/compile_commands.json").read_text()):
        file = pathlib.Path(command["file"])
        if not re.search(pattern, str(file)) or "nanobind" in str(file):
            continue
        stamp = pathlib.Path(stamps) / str(file.relative_to(ROOT)).replace("/", "_")
        if not stamp.exists() or stamp.stat().st_mtime < max(headers, newest(sources(file))):
            print(file, stamp)


if __name__ == "__main__":
    main(*sys.argv[1:])
