"""The `penstock` program, which comes with the package."""

from __future__ import annotations

import os
import pathlib
import signal
import sys
from typing import NoReturn

from . import _penstock
from .errors import Error


def path() -> pathlib.Path:
    """Where it is: beside the module in an installed package, above the package in a build folder."""
    folder = pathlib.Path(_penstock.__file__).parent
    places = [folder / "bin" / "penstock", folder.parent.parent / "penstock"]
    for place in places:
        if place.is_file():
            return place
    raise Error(f"the penstock program is not at {' or '.join(map(str, places))}: install the package again")


def main() -> NoReturn:
    """Becomes the program, with this process's arguments."""
    program = str(path())
    os.environ.setdefault("PENSTOCK_PYTHON", sys.executable)  # for what the program leaves to Python
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and a program would inherit that
    os.execv(program, [program, *sys.argv[1:]])
