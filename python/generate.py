#!/usr/bin/env python3
"""Writes what of the package follows from the native module: penstock/keys.py and penstock/_penstock.pyi.

    PYTHONPATH=build/python python3 python/generate.py           # after a change of a key or of the module
    PYTHONPATH=build/python python3 python/generate.py --check   # exit code 1 and the difference, if there is one
"""

from __future__ import annotations

import difflib
import importlib.util
import pathlib
import re
import sys
import textwrap
from types import ModuleType
from typing import Any

PACKAGE = pathlib.Path(__file__).resolve().parent / "penstock"


def native_module() -> ModuleType:
    """Without the package around it, which needs what is made here."""
    for folder in map(pathlib.Path, sys.path):
        for file in folder.glob("penstock/_penstock.*.so"):
            spec = importlib.util.spec_from_file_location("penstock._penstock", file)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    sys.exit("no penstock/_penstock.*.so in PYTHONPATH: build the module first")

# What makes a mel: the keys that penstock.mel() takes.
MEL = {"sample_rate", "n_fft", "win_length", "hop_length", "n_mels", "mel_fmin", "mel_fmax", "mel_scale", "mel_norm",
       "mel_power", "mel_eps", "mel_framing", "mel_pad_mode", "mel_log", "mel_floor", "mel_precision", "mel_layout"}

HEADER = '''"""Every key of the configuration, with its type. Made by python/generate.py."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, TypedDict, Union

Path = Union[str, "os.PathLike[str]"]
'''


def annotation(key: Any) -> str:
    words = f"Literal[{', '.join(repr(word).replace(chr(39), chr(34)) for word in key.words)}]" if key.words else ""
    plain = {"text": "str", "path": "Path", "boolean": "bool", "whole": "int", "real": "float",
             "bytes": "int | str", "folders": "str | Mapping[str, Path]"}
    if key.kind == "choice":
        return words
    if key.kind == "whole" and words:
        return f"int | {words}"
    return plain[key.kind]


def lines_of(key: Any) -> str:
    """For a docstring."""
    default = f" (default {key.default})" if key.default and f"({key.default}" not in key.help else ""
    return textwrap.fill(f"{key.name}: {key.help}{default}", 112, initial_indent="    ", subsequent_indent="        ")


def typed_dict(name: str, doc: str, keys: list[Any], base: str = "TypedDict") -> str:
    fields = "".join(f"    {key.name}: {annotation(key)}\n" for key in keys)
    return f'\n\nclass {name}({base}, total=False):\n    """{doc}"""\n\n{fields}'


def keys_module(module: ModuleType) -> str:
    keys = module.config_keys()
    mel = [key for key in keys if key.name in MEL]
    assert len(mel) == len(MEL)
    rest = [key for key in keys if key.name != "dataset_path"]
    return (HEADER
            + typed_dict("MelKeys", "What makes a mel.", mel)
            + typed_dict("Keys", "What Feed, info and the functions of penstock.cache take.",
                         [key for key in rest if key.name not in MEL], "MelKeys")
            + '\n\nHELP = """\\\n' + "\n".join(map(lines_of, rest)) + '"""\n'
            + 'MEL_HELP = """\\\n' + "\n".join(map(lines_of, mel)) + '"""\n')


def stub(module: ModuleType) -> str:
    from nanobind.stubgen import StubGen  # type: ignore[import-untyped]

    generator = StubGen(module, quiet=True, max_expr_length=0)
    generator.put(module)
    return re.sub(r"\n\n\n+", "\n\n", generator.get())


def main() -> int:
    check = sys.argv[1:] == ["--check"]
    differences: list[str] = []
    module = native_module()
    for name, text in [("keys.py", keys_module(module)), ("_penstock.pyi", stub(module))]:
        path = PACKAGE / name
        before = path.read_text() if path.exists() else ""
        if check:
            lines = before.splitlines(), text.splitlines()
            differences += difflib.unified_diff(*lines, name, "as it should be", lineterm="")
        elif before != text:
            path.write_text(text)
    print("\n".join(differences), end="\n" if differences else "")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
