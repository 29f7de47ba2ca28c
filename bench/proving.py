"""What every file of proofs builds on: the register, the shell whose commands end up in docs/evidence.md, the datasets, the peers, and what
several proofs measure."""
import glob
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time
from statistics import median

from calm import calm
from evidence import Line, judged

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs/evidence.md"
DATA = pathlib.Path(os.environ.get("PENSTOCK_PROVE_DATA", ROOT / "build/prove-data")).absolute()
PEERS = pathlib.Path(os.environ.get("PENSTOCK_PEER_ENVS", ROOT / "build/peers")).absolute()
LONG = {"PENSTOCK_LONG": "1"}
PYTHON = {"PYTHONPATH": "build/python"}
NPY, LARGE = (DATA.with_name(DATA.name + suffix) for suffix in ("-npy", "-large"))
REQUIREMENTS = {"venv": "peers/live/requirements-main.txt", "venv-tf": "peers/live/requirements-tf.txt", "venv-train": "train/requirements.txt"}
TCMALLOC = {"LD_PRELOAD": "libtcmalloc_minimal.so.4"}
PEER_SCRIPTS = {  # task: script, environment, variables: what is fastest for each
    "live": [
        ("mlx_data.py", "venv", TCMALLOC),
        ("grain_loader.py", "venv", TCMALLOC),
        ("spdl_loader.py", "venv", {}),
        ("torch_loader.py", "venv", {}),
        ("dali.py", "venv", {}),
        ("tf_native.py", "venv-tf", {}),
        ("tf_librosa.py", "venv-tf", {}),
    ],
    "cached": [
        ("mlx_data.py", "venv", TCMALLOC),
        ("dali.py", "venv", TCMALLOC),
        ("torch_loader.py", "venv", TCMALLOC),
        ("grain_loader.py", "venv", TCMALLOC),
        ("spdl_loader.py", "venv", TCMALLOC),
        ("tf_native.py", "venv-tf", {}),
        ("tf_numpy.py", "venv-tf", {}),
    ],
}
FIXED_SHAPE = "--split all --batch-size 16 --pad-to-fixed-length --max-mel-frames 880 --max-text-length 256".split()
LARGE_CLIPS, LARGE_EPOCH = 13_100, 818  # clips, and the batches of 16 in them: larger than any cache of a CPU

PROOFS = {}  # name: (title, function), in the order of the document


def proof(title):
    def register(function):
        PROOFS[function.__name__] = (title, function)
        return function

    return register


class Shell:
    """Runs commands in the project's folder, and keeps each as a reader would type it. What they say on stderr is seen at once."""

    def __init__(self):
        self.typed, self.closing = [], ""  # the commands, and what follows the table of figures
        self.names = {str(DATA): "DATA", str(PEERS): "PEERS", sys.executable: "python"}  # what a reader has elsewhere

    def attempt(self, *words, env=None):
        words, env = [str(word) for word in words], env or {}
        shown = shlex.join(words)
        for path, name in self.names.items():
            shown = shown.replace(path, name)
        typed = " ".join([*(f"{key}={value}" for key, value in env.items()), shown])
        if typed not in self.typed:
            self.typed.append(typed)
        print(f"   $ {typed}", flush=True)
        return subprocess.run(words, cwd=ROOT, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True)

    def __call__(self, *words, env=None):
        """The output of a command that must succeed."""
        done = self.attempt(*words, env=env)
        if done.returncode != 0:
            print(done.stdout[-2000:], file=sys.stderr)
            raise RuntimeError(f"{pathlib.Path(words[0]).name}: exit code {done.returncode}")
        return done.stdout


def prepare_data():
    if not (DATA / "metadata.csv").exists():
        subprocess.run(["build/penstock", "synth", DATA, "--clips", "1000", "--seed", "1"], cwd=ROOT, check=True)


def prepare_large():
    """The clips over and over, under other ids: links to the same files, but mels of their own."""
    prepare_data()
    if (LARGE / "metadata.csv").exists():
        return
    (LARGE / "wavs").mkdir(parents=True, exist_ok=True)
    lines = [line.split("|", 1) for line in (DATA / "metadata.csv").read_text().splitlines()]
    copies = [(f"{name}-{i // len(lines)}", name, text) for i in range(LARGE_CLIPS) for name, text in [lines[i % len(lines)]]]
    for new, old, _ in copies:
        link = LARGE / f"wavs/{new}.wav"
        link.unlink(missing_ok=True)
        link.symlink_to(DATA / f"wavs/{old}.wav")
    (LARGE / "metadata.csv").write_text("".join(f"{new}|{text}\n" for new, _, text in copies))


def prepare_environments(*names):
    """Python environments of their own, made again when their requirements change. Those in a folder that the caller named are taken as
    they are."""
    for name in names:
        wanted, stamp = ROOT / "bench" / REQUIREMENTS[name], PEERS / name / "requirements.installed"
        python = PEERS / name / "bin/python"
        ready = stamp.exists() and stamp.read_text() == wanted.read_text()
        if ready or (python.exists() and "PENSTOCK_PEER_ENVS" in os.environ):
            continue
        print(f"   making the Python environment {name}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", PEERS / name], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", wanted], check=True)
        shutil.copy(wanted, stamp)


def prepare_peers():
    """The peers' environments, and the allocator that some of them like best."""
    prepare_environments("venv", "venv-tf")
    if not glob.glob("/usr/lib/*/libtcmalloc_minimal.so.4"):
        as_root = [] if os.geteuid() == 0 else ["sudo"]
        subprocess.run([*as_root, "apt-get", "install", "-y", "-qq", "--no-install-recommends", "libtcmalloc-minimal4"], check=True)


def bench(shell, *options, data=DATA):
    return json.loads(shell("build/penstock", "bench", data, *FIXED_SHAPE, "--json", *options))


def build_cache(shell, data, *options):
    return json.loads(shell("build/penstock", "cache", "build", data, "--json", *options))


def run_peer(shell, task, data, script, environment, variables):
    output = shell(PEERS / environment / "bin/python", f"bench/peers/{task}/{script}", data, env=variables)
    return json.loads(output.splitlines()[-1])


def take_turns(shell, task, data, rounds, ours):
    """Runs every peer of a task, and after each of them ours ({name: function}): {name: results}, ours first."""
    results = {name: [] for name in ours}
    for _ in range(rounds):
        for peer in PEER_SCRIPTS[task]:
            result = run_peer(shell, task, data, *peer)
            results.setdefault(result["peer"], []).append(result)
            for name, measure in ours.items():
                results[name].append(measure())
    return results


def speeds(results):
    for name, runs in results.items():
        yield Line(f"{name}: samples/s, CPU s per 1,000", "",
                   f"{middle(runs, 'samples_per_second'):,.0f}, {middle(runs, 'cpu_seconds_per_1000'):.3f}")


def fastest(results, ours):
    return max(middle(runs, "samples_per_second") for name, runs in results.items() if name not in ours)


def middle(results, key):
    return median(result[key] for result in results)


def timed(shell, *words, **options):
    start = time.perf_counter()
    shell(*words, **options)
    return time.perf_counter() - start


def utilisation(shell, steps, *options):
    for step, share in steps:
        runs = calm(lambda step=step: bench(shell, "--step-ms", step, *options), 3)
        reached = median(run["au"] / run["au_ceiling"] for run in runs)
        yield judged(f"AU with steps of {step} ms", f">= {share} x the ceiling",
                     f"{reached:.4f} x ({middle(runs, 'au'):.4f} of {middle(runs, 'au_ceiling'):.4f}); {stolen_in(runs)}", reached >= share)


def stolen_in(runs):
    return f"{max(run['stolen'] for run in runs):.1%} of the CPU time taken by the hypervisor"


def run_tests(shell, program, *options):
    """Lines of a GoogleTest program's long run: how many passed, and what the tests report as `EVIDENCE what | bar | figure`."""
    done = shell.attempt(program, *options, env=LONG)
    reported, pending = [], []
    for text in done.stdout.splitlines():
        if text.startswith("EVIDENCE "):
            pending.append([cell.strip() for cell in text.removeprefix("EVIDENCE ").split("|", 2)])
        elif outcome := re.match(r"\[ +(OK|FAILED|SKIPPED) +\] .*\(\d+ ms\)$", text):
            reported += [judged(*cells, outcome[1] == "OK") for cells in pending]
            pending = []
    reported += [judged(*cells, False) for cells in pending]  # the program ended inside a test
    total = re.search(r"^\[=+\] Running (\d+) tests?", done.stdout, re.MULTILINE)
    passed, skipped = (len(re.findall(rf"^\[ +{word} +\] .*\(\d+ ms\)$", done.stdout, re.MULTILINE)) for word in ("OK", "SKIPPED"))
    complete = done.returncode == 0 and total and passed > 0 and passed + skipped == int(total[1])
    if not complete:
        print(done.stdout[-3000:], file=sys.stderr)
    figure = f"{passed} of {total[1] if total else '?'} passed" + (f", {skipped} skipped" if skipped else "")
    yield judged(program, "all tests pass", figure, complete)
    yield from reported
