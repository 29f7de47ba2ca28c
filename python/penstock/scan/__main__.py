"""`python -m penstock.scan`, or `python3 FOLDER` with this folder.

The latter needs no native module, so any Python from 3.9 on will do."""

import os
import sys


def _run() -> int:
    if sys.version_info < (3, 9):
        print("penstock scan needs Python 3.9 or later, but this is " + sys.version.split()[0], file=sys.stderr)
        return 2
    if __package__:
        from .command import main
    else:
        here = os.path.dirname(os.path.abspath(__file__))
        sys.path[0] = os.path.dirname(here)
        main = __import__("scan.command", fromlist=["main"]).main
    try:
        code = int(main())
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(_run())
