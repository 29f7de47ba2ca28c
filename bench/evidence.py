"""docs/evidence.md: one section for each proof, with its date, machine, commands and a table of bars and figures."""
import dataclasses
import datetime
import os
import pathlib
import platform
import re
import shutil
import subprocess

HEAD = """# Evidence

Every bar that Penstock sets itself, as `./run prove` last measured it; `./run prove NAME` replaces one section. `DATA` is a folder with
1,000 spoken clips (`penstock synth DATA --clips 1000 --seed 1` unless `PENSTOCK_PROVE_DATA` names another), `PEERS` the Python
environments of `bench/peers`.
"""
MET, MISSED = "met", "**missed**"


@dataclasses.dataclass
class Line:
    what: str
    bar: str
    figure: str
    verdict: str = ""  # empty: for information

    def cells(self):
        return [cell.replace("|", "\\|") for cell in (self.what, self.bar, self.figure, self.verdict)]


def judged(what, bar, figure, met):
    return Line(what, bar, figure, MET if met else MISSED)


def at_most(what, value, limit, unit="", digits=2):
    return judged(what, f"<= {limit:g}{unit}", f"{value:.{digits}f}{unit}", value <= limit)


def below(what, value, limit, unit="", digits=2):
    return judged(what, f"< {limit:.3g}{unit}", f"{value:.{digits}f}{unit}", value < limit)


def at_least(what, value, limit, unit="", digits=2):
    return judged(what, f">= {limit:g}{unit}", f"{value:.{digits}f}{unit}", value >= limit)


def machine():
    def field(path, name):
        return re.search(rf"^{name}\s*:\s*(.*)$", pathlib.Path(path).read_text(), re.MULTILINE)

    cpu = field("/proc/cpuinfo", "model name")
    memory = int(field("/proc/meminfo", "MemTotal")[1].split()[0]) / 2**20
    compiler = "no c++" if not shutil.which("c++") else subprocess.run(["c++", "--version"], capture_output=True, text=True).stdout.split("\n")[0]
    return (f"{cpu[1] if cpu else platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}, "
            f"{compiler}")


def section(name, title, commands, lines, closing=""):
    """`closing` is Markdown that follows the table."""
    rows = [["what", "bar", "measured", ""], ["---"] * 4, *(line.cells() for line in lines)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    listing = "\n".join(commands)
    closing = f"\n{closing}\n" if closing else ""
    return f"## {name}: {title}\n\n{datetime.date.today()} · {machine()}\n\n```\n{listing}\n```\n\n{table}\n{closing}"


def replace_section(path, name, text, order):
    """Puts a section in its place; the others stay as they are."""
    sections = {name: text}
    if path.exists():
        for old in re.split(r"^(?=## )", path.read_text(), flags=re.MULTILINE)[1:]:
            sections.setdefault(re.match(r"## (\w+)", old)[1], old.rstrip() + "\n")
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([HEAD, *(sections[n] for n in order if n in sections)]))
