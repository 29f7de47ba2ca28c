#!/usr/bin/env python3
"""`./run fresh`: the proof `fresh` by itself, with options, by any python3. See --help."""
import argparse
import os
import pathlib
import signal
import sys

import bare_system
import prove
from prove_fresh import FOLDER, measure
from proving import PROOFS


def options(words=None):
    parser = argparse.ArgumentParser(
        prog="./run fresh", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Runs ./run demo and then ./run test, or one of them, on a bare Debian: a tree by debootstrap, whose only packages are\n"
                    f"{', '.join(bare_system.PACKAGES)}, with this machine's package settings and a clone of what is committed.\n"
                    "Writes the time of every part and the screen's last lines to docs/evidence.md. Needs root or sudo; without both, docker or\n"
                    "podman, which has not been tried. The exit code is the command's; 2 where there can be no bare system.")
    parser.add_argument("command", nargs="?", choices=["demo", "test", "all"], default="all")
    parser.add_argument("--suite", default="bookworm", help="of Debian (bookworm)")
    parser.add_argument("--folder", type=pathlib.Path, default=FOLDER,
                        help="for the base, which is made once, the copies, and the logs (~/.cache/penstock/fresh); may be removed at any time")
    parser.add_argument("--keep", action="store_true", help="do not remove the copy at the end")
    parser.add_argument("--user", action="store_true", help="as an ordinary user who has sudo, not as root")
    return parser.parse_args(words)


def main(chosen):
    commands = ["./run demo", "./run test"] if chosen.command == "all" else [f"./run {chosen.command}"]
    try:
        bare_system.way(bare_system.job(chosen.folder, chosen.suite, commands))
    except bare_system.Unavailable as error:
        print(error, file=sys.stderr)
        return 2
    codes = []

    def fresh(shell):
        said = [chosen.command] * (chosen.command != "all") + ["--suite", chosen.suite] * (chosen.suite != "bookworm") + ["--user"] * chosen.user
        shell.typed.append(" ".join(["./run fresh", *said]))
        codes.append((yield from measure(shell, commands, chosen.suite, chosen.folder, chosen.user, chosen.keep)))

    PROOFS["fresh"] = PROOFS["fresh"][0], fresh
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both let the part with root remove what it made
    try:
        prove.prove("fresh")
    except KeyboardInterrupt:
        return 130
    return codes[0] if codes else 2


if __name__ == "__main__":
    os.chdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.exit(main(options()))
