"""The proof that a bare system suffices: `./run demo`, and then `./run test` in the same tree, where only git, python3, g++ and certificates
are installed. The time of every part, and what the screen shows at the end."""
import dataclasses
import os
import pathlib
import re
import resource
import subprocess
import time
from typing import Optional

import bare_system
from calm import Stolen
from evidence import Line, judged
from proving import ROOT, proof

FIRST_FIGURES = ("info", "the feed at full speed, from audio")  # the parts of `./run demo` that show them
DOWNLOADS = ("packages", "LibTorch")  # the parts that wait for a network
MOST = {"demo": 360, "test": 1500}  # seconds, on two cores
MOST_TO_FIGURES = 150  # seconds, on two cores, without the downloads before them
LAST_LINES = 40
FOLDER = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "penstock/fresh"


@dataclasses.dataclass
class Part:
    name: str
    depth: int
    start: float
    end: Optional[float] = None  # it did not end


@dataclasses.dataclass
class Run:
    """A command inside, with its lines and when each came."""

    command: str
    start: float
    end: float = 0
    code: Optional[int] = None  # it did not end
    lines: list = dataclasses.field(default_factory=list)

    @property
    def name(self):
        return self.command.split()[-1]


def parts(lines):
    """The parts of (time, line) pairs, as `run` prints them: `── NAME`, and at its end `── NAME: N s`. In the order in which they start."""
    found = []
    for when, line in lines:
        ended = re.fullmatch(r"── (.*): \d+(?:\.\d+)? s", line)
        running = [part for part in found if part.end is None]
        mine = [part for part in running if ended and part.name == ended[1]]
        if mine:
            mine[-1].end = when
        elif line.startswith("── "):
            found.append(Part(line[3:], len(running), when))
    return found


def seconds_to_figures(run):
    """From the command to the end of the parts that show the first figures, without the downloads before them; None when one did not end."""
    ends = {part.name: part.end for part in parts(run.lines)}
    if any(ends.get(name) is None for name in FIRST_FIGURES):
        return None
    figures = max(ends[name] for name in FIRST_FIGURES)
    downloads = (part.end - part.start for part in parts(run.lines) if part.name in DOWNLOADS and part.end is not None and part.end <= figures)
    return figures - run.start - sum(downloads)


def lines_of(run):
    """The lines of the section about one command."""
    yield judged(run.command, "exit code 0", "stopped" if run.code is None else f"exit code {run.code}", run.code == 0)
    if run.name in MOST:
        took, most = run.end - run.start, MOST[run.name]
        yield judged(f"{run.command}, everything, on two cores", f"<= {most} s", f"{took:.0f} s", run.code == 0 and took <= most)
    if run.name == "demo":
        took = seconds_to_figures(run)
        yield judged("to the first figures, without the downloads, on two cores", f"<= {MOST_TO_FIGURES} s",
                     "none shown" if took is None else f"{took:.0f} s", took is not None and took <= MOST_TO_FIGURES)
    for part in parts(run.lines):
        yield Line(f"{'· ' * part.depth}{part.name}", "", "did not end" if part.end is None else f"{part.end - part.start:.0f} s")


def screen(runs, folder):
    """The last lines of each command as a block of code, without what is this machine's alone."""
    shown = []
    for run in runs:
        shown += [f"$ {run.command}", *(line for _, line in run.lines[-LAST_LINES:])]
    text = re.sub(r"https?://(?!localhost|127\.|\[::1)\S+", "(address)", "\n".join(shown))
    text = re.sub(rf"{re.escape(str(folder))}(/run-\d+/root)?", "", text).replace("```", "'''")
    return "The screen's last lines:\n\n```\n" + re.sub(r"^(?=## )", " ", text, flags=re.MULTILINE) + "\n```"


def plain(line):
    """As a terminal would leave it: no colours, and of a line that was written over only the last state."""
    return re.sub(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|.)", "", line).rstrip("\r\n").rpartition("\r")[2]


def follow(output, commands, folder):
    """Shows what the process says, and yields a Run for each command as it starts; a file in `folder` has its lines with their times. Yields
    the remarks about the system itself as text."""
    run, log = None, None
    try:
        for raw in output:
            print(raw, end="", flush=True)
            line, now = plain(raw), time.monotonic()
            if run is None and line.startswith("$ ") and line[2:] in commands:
                run = Run(line[2:], now)
                log = open(folder / f"{run.name}.log", "w")  # noqa: SIM115 (open from one line to another)
                yield run
            elif run and re.fullmatch(rf"\$ {re.escape(run.command)}: exit code \d+", line):
                run.end, run.code = now, int(line.rpartition(" ")[2])
                run = log.close()
            elif run:
                run.end = now
                run.lines.append((now, line))
                print(f"{now - run.start:8.1f}  {line}", file=log, flush=True)
            else:
                yield line
    finally:
        if log:
            log.close()


def git(*words):
    return subprocess.run(["git", "-c", f"safe.directory={ROOT}", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def cores_busy(ticks):
    """Cores kept busy by anybody between two readings, of a clock of 100 Hz."""
    user, nice, system, _, _, interrupts, soft, _ = ticks
    return (user + nice + system + interrupts + soft) / 100


def busy_now(seconds=2):
    before = Stolen.ticks()
    time.sleep(seconds)
    return cores_busy([now - then for now, then in zip(Stolen.ticks(), before)]) / seconds


def measure(shell, commands=("./run demo", "./run test"), suite="bookworm", folder=FOLDER, user=False, keep=False):
    """Runs the commands, one after the other in one bare system, and yields the section's lines. Returns the first exit code that is not 0."""
    folder = pathlib.Path(folder).absolute()
    task = bare_system.job(folder, suite, list(commands), user, keep)
    how = bare_system.way(task)
    folder.mkdir(parents=True, exist_ok=True)
    load, cores_before = os.getloadavg()[0], busy_now()
    changed = len(git("status", "--porcelain").splitlines())
    if changed:
        print(f"not taken along: {changed} files that are not committed", flush=True)
    given = folder / f"bundle-{os.getpid()}"
    given.mkdir()
    runs, remarks = [], []
    began, ticks = time.monotonic(), Stolen.ticks()
    try:
        git("bundle", "create", "-q", str(given / "penstock.bundle"), "HEAD")
        process = bare_system.start(how, task, given / "penstock.bundle")
        try:
            for news in follow(process.stdout, commands, folder):
                (runs if isinstance(news, Run) else remarks).append(news)
        finally:
            process.stdin.close()
            code = process.wait()
    finally:
        bare_system.remove(given)
    passed = [now - then for now, then in zip(Stolen.ticks(), ticks)]
    if not runs:
        raise RuntimeError(f"no bare system: {remarks[-1] if remarks else f'exit code {code}'}")
    shell.closing = screen(runs, folder)
    system = next((line.partition(": ")[2] for line in remarks if line.startswith("bare system: ")), "?")
    yield Line("the system, and how it was had", "", f"{system}; {'a container' if how in ('docker', 'podman') else 'debootstrap'}")
    yield Line("the commit", "", git("rev-parse", "--short", "HEAD") + (f" ({changed} files not committed were left out)" if changed else ""))
    yield from (line for run in runs for line in lines_of(run))
    yield from (judged(command, "exit code 0", "not run", False) for command in commands[len(runs):])
    yield Line("the machine before: load average, cores kept busy", "", f"{load:.2f}, {cores_before:.2f}")
    if how in ("root", "sudo"):
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        others = (cores_busy(passed) - used.ru_utime - used.ru_stime) / (time.monotonic() - began)
        yield Line("cores that others kept busy meanwhile, and after", "", f"{max(0, others):.2f}, {busy_now():.2f}")
    yield Line("CPU time taken by the hypervisor", "", f"{passed[7] / max(1, sum(passed)):.1%}")
    return code


@proof("a bare Debian with git, python3, g++ and certificates")
def fresh(shell):
    shell.typed.append("./run fresh")
    yield from measure(shell)
