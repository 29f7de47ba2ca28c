"""The command line of `penstock scan`."""

from __future__ import annotations

import argparse
import json
import os
import sys

from . import output
from .rules import RULES
from .run import Result, scan_paths

_EXAMPLES = """examples:
  penstock scan train.py                   what starves the device, by file and line
  penstock scan src --exclude 'tests/*'    a folder with all below it, in parallel
  penstock scan src --json | jq .counts
  penstock scan src --sarif scan.sarif     for code review (SARIF 2.1.0)

A comment silences its line: # penstock: ignore, or for some rules only # penstock: ignore[host-sync-every-step].
Nothing is imported or run. Exit code: 0, 1 (something critical was found) or 2 (misuse)."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="penstock scan",
        description="Reads Python sources and notebooks, and lists what starves a device: "
        "where, why, what it costs and what to write instead.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", nargs="*", metavar="PATH", help="files and folders (*.py, *.ipynb)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--sarif", metavar="FILE", help="also write the findings as SARIF 2.1.0")
    parser.add_argument(
        "--ignore", metavar="RULE", action="append", default=[], help="leave a rule out (can be repeated)"
    )
    parser.add_argument(
        "--exclude", metavar="GLOB", action="append", default=[], help="leave out files or folders (can be repeated)"
    )
    parser.add_argument("--jobs", type=_positive, metavar="N", help="processes (default: one per core)")
    parser.add_argument("--list-rules", action="store_true", help="print every rule with its level")
    options = parser.parse_args(arguments)
    if options.list_rules:
        print(output.rules())
        return 0
    if not options.path:
        parser.error("which file or folder? For example: penstock scan .")
    for path in options.path:
        if not os.path.exists(path):
            parser.error(f"{path}: no such file or folder")
    for rule in options.ignore:
        if rule not in RULES:
            parser.error(f"--ignore {rule}: no such rule; --list-rules shows them")
    result = scan_paths(options.path, jobs=options.jobs, exclude=options.exclude)
    result.findings = [f for f in result.findings if f.rule not in options.ignore]
    if options.sarif:
        try:
            _write(options.sarif, json.dumps(output.as_sarif(result), indent=1, ensure_ascii=False))
        except OSError as error:
            parser.error(f"--sarif {options.sarif}: {error.strerror}")
    _print(result, options.json)
    return 1 if result.count("critical") else 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _write(path: str, text: str) -> None:
    """Under another name first, so that a Ctrl-C leaves no half of a file."""
    partial = f"{path}.part"
    try:
        with open(partial, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(partial, path)
    except BaseException:
        if os.path.exists(partial):
            os.unlink(partial)
        raise


def _print(result: Result, as_json: bool) -> None:
    if as_json:
        print(json.dumps(output.as_json(result), ensure_ascii=False))
    else:
        print(output.text(result, colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ))
