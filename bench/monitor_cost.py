#!/usr/bin/env python3
"""What `penstock monitor` takes of a core at ten samples a second: its CPU time over its time, as JSON by the way it is used.

    python3 bench/monitor_cost.py build/penstock 30
"""
import fcntl
import json
import os
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time


def drain(fd):
    try:
        while os.read(fd, 65536):
            pass
    except OSError:  # the terminal's other end is closed
        pass


def share(words, terminal):
    """CPU seconds of one run, its waited-for children included, over its seconds."""
    if terminal:
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    else:
        ours, theirs = os.pipe()
    environment = {**os.environ, "TERM": "xterm-256color"}
    start = time.monotonic()
    running = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    threading.Thread(target=drain, args=(ours,), daemon=True).start()
    _, status, used = os.wait4(running.pid, 0)
    if status != 0:
        sys.exit(f"{words}: ended with {status}")
    return (used.ru_utime + used.ru_stime) / (time.monotonic() - start)


def main(program, seconds):
    with tempfile.TemporaryDirectory() as folder:
        ways = {
            "in a terminal": ([], True),
            "in a pipe": ([], False),
            "in a terminal, every sample into CSV": (["--log-file", f"{folder}/samples.csv"], True),
            "around a command, in a terminal": (["--", "sleep", seconds], True),
        }
        words = [program, "monitor", "--interval", "0.1"]
        found = {way: share([*words, *([] if "--" in more else ["--duration", seconds]), *more], terminal)
                 for way, (more, terminal) in ways.items()}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
