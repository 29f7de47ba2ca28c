"""Files to findings: one file, or all below a folder in several processes."""

from __future__ import annotations

import ast
import fnmatch
import gc
import multiprocessing
import os
import signal
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field

from . import jit_checks, loader_checks, loop_checks, sample_checks
from .file import File, Found
from .rules import LEVELS, RULES, Finding
from .source import LARGEST, Source, Unreadable, read

_CHECKS = (sample_checks, loader_checks, jit_checks, loop_checks)
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}
_CHUNK = 16  # files for a process at a time


@dataclass
class Result:
    """What was found. `notes` are (path, reason) of files that could not be read, and of comments that name no rule."""

    files: int = 0
    findings: list[Finding] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: Result) -> None:
        self.files += other.files
        self.findings += other.findings
        self.notes += other.notes

    def count(self, level: str) -> int:
        return sum(f.level == level for f in self.findings)


def scan_source(data: str | bytes, path: str = "<text>") -> Result:
    """The findings in one Python file, or in a notebook where the path ends with .ipynb."""
    result = Result(1)
    data = data.encode() if isinstance(data, str) else data
    try:
        source = read(data, path.endswith(".ipynb"))
        if source is None:
            return result
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the parser, about escapes in strings
            file = File(source.text)
            found = {(f.rule, f.node.lineno, f.node.col_offset): f for c in _CHECKS for f in c.check(file)}
    except Unreadable as why:
        result.notes.append((path, str(why)))
        return result
    except SyntaxError as error:
        result.notes.append((path, f"line {error.lineno}: syntax error: {error.msg}"))
        return result
    except (RecursionError, MemoryError, ValueError) as error:
        result.notes.append((path, f"too deeply nested to be read: {type(error).__name__}"))
        return result
    except Exception as error:  # a fault of ours must not hide what other files have
        result.notes.append((path, f"penstock scan failed here, which is a fault of it: {error!r}"))
        return result
    for line, rules in source.ignored.items():
        result.notes += [
            (path, f"line {line}: ignore[{r}]: no such rule; --list-rules shows them")
            for r in sorted(rules - set(RULES))
        ]
    findings = [_finding(path, source, file, f) for f in found.values() if not _is_ignored(source, f)]
    result.findings = sorted(findings, key=lambda f: (f.cell or 0, f.line, f.column, f.rule))
    return result


def _is_ignored(source: Source, found: Found) -> bool:
    for line in range(found.node.lineno, (found.node.end_lineno or found.node.lineno) + 1):
        rules = source.ignored.get(line)
        if rules is not None and (not rules or found.rule in rules):
            return True
    return False


def _finding(path: str, source: Source, file: File, found: Found) -> Finding:
    rule, node = RULES[found.rule], found.node
    line, end = _start(node), node.end_lineno or node.lineno
    text = file.module.lines[line[0] - 1]
    column = len(text.encode()[: line[1]].decode(errors="replace"))
    end_column = len(file.module.lines[end - 1].encode()[: node.end_col_offset].decode(errors="replace"))
    shown, cell = source.place(line[0])
    return Finding(
        path=path,
        line=shown,
        column=column + 1,
        end_line=source.place(end)[0],
        end_column=end_column + 1,
        rule=rule.id,
        level=found.level or rule.level,
        message=found.message,
        instead=found.instead or rule.instead,
        code=text.strip(),
        cell=cell,
    )


def _start(node: ast.expr) -> tuple[int, int]:
    """Where a reader looks for a call: at the name after the dot where a chain goes over several lines."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.end_lineno != node.lineno:
        return node.func.end_lineno or node.lineno, (node.func.end_col_offset or 0) - len(node.func.attr.encode())
    return node.lineno, node.col_offset


def python_files(paths: Iterable[str], exclude: Iterable[str] = ()) -> Iterator[str]:
    """Every .py and .ipynb below the paths, in order, once, without hidden folders, environments and caches."""
    seen: set[tuple[int, int]] = set()
    patterns = list(exclude)
    for path in paths:
        if os.path.isdir(path):
            for folder, folders, names in os.walk(path):
                folders[:] = sorted(f for f in folders if not _is_skipped(os.path.join(folder, f), patterns))
                for name in sorted(names):
                    file = os.path.join(folder, name)
                    if name.endswith((".py", ".ipynb")) and not _matches(file, patterns) and _is_new(file, seen):
                        yield file
        elif _is_new(path, seen):
            yield path


def _is_new(file: str, seen: set[tuple[int, int]]) -> bool:
    try:
        status = os.stat(file)
    except OSError:
        return False  # a link to nowhere
    key = (status.st_dev, status.st_ino)
    if key in seen:
        return False
    seen.add(key)
    return True


def _is_skipped(folder: str, patterns: list[str]) -> bool:
    name = os.path.basename(folder)
    return (
        name.startswith(".")
        or name in _SKIPPED
        or _matches(folder, patterns)
        or os.path.exists(os.path.join(folder, "pyvenv.cfg"))
    )


def _matches(path: str, patterns: list[str]) -> bool:
    """Whether a pattern fits a path or its end: tests/* is also a/tests/b.py."""
    return any(fnmatch.fnmatch(path, p) or fnmatch.fnmatch(path, f"*/{p}") for p in patterns)


def scan_file(path: str) -> Result:
    try:
        if not os.path.isfile(path):
            return Result(0, notes=[(path, "is not a file")])
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        return Result(1, notes=[(path, f"cannot be read: {error.strerror}")])
    return scan_source(data, path)


def _scan_chunk(paths: list[str]) -> Result:
    result = Result()
    gc.disable()  # a tree has no cycles: nothing is to be collected
    try:
        for path in paths:
            result.add(scan_file(path))
    finally:
        gc.enable()
    return result


def scan_paths(paths: Iterable[str], *, jobs: int | None = None, exclude: Iterable[str] = ()) -> Result:
    """The findings in files and below folders. `jobs` is the number of processes: one per core unless given."""
    files = list(python_files(paths, exclude))
    chunks = [files[i : i + _CHUNK] for i in range(0, len(files), _CHUNK)]
    jobs = min(jobs or len(os.sched_getaffinity(0)), len(chunks))
    if jobs <= 1:
        return _scan_chunk(files)
    result = Result()
    with ProcessPoolExecutor(jobs) as pool:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a Ctrl-C is for us, not for those who inherit this
        futures = [pool.submit(_scan_chunk, chunk) for chunk in chunks]
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            for chunk, future in zip(chunks, futures):
                try:
                    result.add(future.result())
                except BrokenProcessPool:  # the parser itself fell: find out at which file
                    for path in chunk:
                        result.add(_scan_alone(path))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                child.terminate()
            raise
    return result


def _scan_alone(path: str) -> Result:
    with ProcessPoolExecutor(1) as pool:
        try:
            return pool.submit(scan_file, path).result()
        except BrokenProcessPool:
            return Result(1, notes=[(path, "Python's parser crashed on it")])


__all__ = ["LEVELS", "Result", "python_files", "scan_file", "scan_paths", "scan_source"]
