"""Findings as text for people, as JSON for programs and as SARIF for code review."""

from __future__ import annotations

import dataclasses
import os
import textwrap
import urllib.parse
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from .rules import LEVELS, RULES, Finding
from .run import Result

_COLOURS = {"critical": "31;1", "warning": "33;1", "hint": "36;1", "bold": "1", "dim": "2"}
_WIDTH = 110
_SARIF_LEVELS = {"critical": "error", "warning": "warning", "hint": "note"}


def text(result: Result, colour: bool) -> str:
    """Each finding under its file; the reasons once for each rule."""
    lines: list[str] = []
    explained: set[str] = set()
    for path, findings in groupby(result.findings, key=lambda f: f.path):
        lines += [_paint(path, "bold", colour)]
        for finding in findings:
            lines += _finding(finding, finding.rule not in explained, colour)
            explained.add(finding.rule)
        lines.append("")
    lines += [
        f"not looked at: {path}: {why}" if "ignore[" not in why else f"{path}: {why}" for path, why in result.notes
    ]
    lines.append(summary(result))
    return "\n".join(lines)


def _finding(finding: Finding, explain: bool, colour: bool) -> Iterator[str]:
    where = f"{finding.line}:{finding.column}"
    if finding.cell is not None:
        where = f"cell {finding.cell}, {where}"
    level, rule_id = _paint(finding.level, finding.level, colour), _paint(f"[{finding.rule}]", "dim", colour)
    yield f"  {where}  {level}  {finding.message}  {rule_id}"
    yield _paint(f"      {finding.code[:_WIDTH]}", "dim", colour)
    rule = RULES[finding.rule]
    parts = [("why", rule.why), ("costs", rule.costs)] if explain else []
    for label, words in [*parts, ("instead", finding.instead)]:
        wrapped = textwrap.wrap(words, _WIDTH - 16, break_long_words=False, break_on_hyphens=False)
        yield f"      {label:<8} {wrapped[0]}"
        yield from (f"{'':<15}{line}" for line in wrapped[1:])


def _paint(words: str, style: str, colour: bool) -> str:
    return f"\033[{_COLOURS[style]}m{words}\033[0m" if colour else words


def summary(result: Result) -> str:
    files = f"{result.files:,} file{'s' * (result.files != 1)}"
    if not result.findings:
        return f"nothing found in {files}"
    counts = [(level, result.count(level)) for level in LEVELS]
    said = [f"{n} {level}{'s' * (n != 1 and level != 'critical')}" for level, n in counts if n]
    return f"{', '.join(said)} in {len({f.path for f in result.findings}):,} of {files}"


def rules() -> str:
    return "\n".join(f"{rule.id:<28} {rule.level:<9} {rule.title}" for rule in RULES.values())


def as_json(result: Result) -> dict[str, Any]:
    findings = []
    for finding in result.findings:
        rule = RULES[finding.rule]
        findings.append({**dataclasses.asdict(finding), "why": rule.why, "costs": rule.costs})
    return {
        "files": result.files,
        "counts": {level: result.count(level) for level in LEVELS},
        "findings": findings,
        "notes": [{"path": path, "reason": why} for path, why in result.notes],
    }


def as_sarif(result: Result) -> dict[str, Any]:
    """SARIF 2.1.0. Paths are as they were given, with forward slashes."""
    ids = list(RULES)
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "penstock scan",
                        "rules": [
                            {
                                "id": rule.id,
                                "shortDescription": {"text": rule.title},
                                "fullDescription": {"text": f"{rule.why} It costs: {rule.costs}."},
                                "help": {"text": f"Instead: {rule.instead}"},
                                "defaultConfiguration": {"level": _SARIF_LEVELS[rule.level]},
                            }
                            for rule in RULES.values()
                        ],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "invocations": [
                    {
                        "executionSuccessful": True,
                        "toolExecutionNotifications": [
                            {"level": "note", "message": {"text": f"{path}: {why}"}} for path, why in result.notes
                        ],
                    }
                ],
                "results": [
                    {
                        "ruleId": finding.rule,
                        "ruleIndex": ids.index(finding.rule),
                        "level": _SARIF_LEVELS[finding.level],
                        "message": {"text": f"{finding.message}. Instead: {finding.instead}"},
                        "locations": [_location(finding)],
                    }
                    for finding in result.findings
                ],
            }
        ],
    }


def _location(finding: Finding) -> dict[str, Any]:
    uri = urllib.parse.quote(finding.path.replace(os.sep, "/"))
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": uri}}}
    if finding.cell is not None:  # the lines are the cell's, not the file's
        location["logicalLocations"] = [{"name": f"cell {finding.cell}, line {finding.line}"}]
        return location
    location["physicalLocation"]["region"] = {
        "startLine": finding.line,
        "startColumn": finding.column,
        "endLine": finding.end_line,
        "endColumn": finding.end_column,
        "snippet": {"text": finding.code},
    }
    return location
