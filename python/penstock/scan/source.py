"""A file as text to be parsed: encodings, notebooks, and the comments that silence a finding."""

from __future__ import annotations

import io
import json
import re
import tokenize
from dataclasses import dataclass, field

# What a file must import before anything in it could be found; the rest is not even parsed.
_FRAMEWORKS = (
    rb"(?:torch|tensorflow|tensorflow_datasets|jax|flax|keras|librosa|soundfile|lightning|"
    rb"pytorch_lightning|grain|equinox)\b"
)
_INTERESTING = re.compile(rb"\bimport[^\n\r]*\b" + _FRAMEWORKS + rb"|\bfrom[ \t]+" + _FRAMEWORKS)
_IGNORE = re.compile(r"#\s*penstock:\s*ignore(?:\[([^\]]*)\])?")
LARGEST = 4_000_000  # bytes: nobody writes more by hand


class Unreadable(Exception):
    """Why a file cannot be looked at."""


@dataclass
class Source:
    text: str
    ignored: dict[int, set[str]] = field(default_factory=dict)  # line: rules; an empty set is all of them
    cells: list[tuple[int, int]] | None = None  # of a notebook: (number of the cell, its first line in text)

    def place(self, line: int) -> tuple[int, int | None]:
        """A line of the text as a line of its notebook cell; of a plain file as it is."""
        if self.cells is None:
            return line, None
        cell, first = max((c for c in self.cells if c[1] <= line), key=lambda c: c[1])
        return line - first + 1, cell


def read(data: bytes, is_notebook: bool) -> Source | None:
    """The text of a file; None where nothing in it could be found. Throws Unreadable."""
    if not _INTERESTING.search(data):
        return None
    if len(data) > LARGEST:
        raise Unreadable(f"larger than {LARGEST // 1_000_000} MB")
    source = _notebook(data) if is_notebook else Source(_decode(data))
    if "penstock:" in source.text:
        source.ignored = _comments(source.text)
    return source


def _decode(data: bytes) -> str:
    if b"\0" in data:
        raise Unreadable("has null bytes: not Python source")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise Unreadable(f"cannot be decoded: {error}") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _notebook(data: bytes) -> Source:
    """All code cells of a notebook as one text, without the lines that are for IPython alone."""
    try:
        found = json.loads(data)
        cells = [c for c in found["cells"] if c["cell_type"] == "code"]
        texts = ["".join(c["source"]) for c in cells]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unreadable(f"is not a notebook of version 4: {error!r}") from None
    lines: list[str] = []
    starts: list[tuple[int, int]] = []
    for number, text in enumerate(texts, 1):
        starts.append((number, len(lines) + 1))
        if text.lstrip().startswith("%%"):
            text = ""  # another language, or timed
        lines += [_plain(line) for line in text.splitlines()] or [""]
    return Source("\n".join(lines) + "\n", cells=starts)


def _plain(line: str) -> str:
    """%magic and !shell become `pass`, so that a block around them keeps its body."""
    stripped = line.lstrip()
    return line[: len(line) - len(stripped)] + "pass" if stripped.startswith(("%", "!", "?")) else line


def _comments(text: str) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            match = _IGNORE.search(token.string) if token.type == tokenize.COMMENT else None
            if match:
                rules = {rule.strip() for rule in (match[1] or "").split(",")} - {""}
                found[token.start[0]] = rules
    except (tokenize.TokenError, SyntaxError):
        pass  # the parser says it better
    return found
