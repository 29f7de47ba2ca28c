#!/usr/bin/env python3
"""Measures every bar and writes docs/evidence.md: `prove.py list`, `prove.py NAME...`, or `prove.py` for all of them.

A proof is a generator of lines (what, bar, figure, met or missed) that runs its commands through a Shell. The exit code is 1 when a bar
was missed."""
import glob
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from statistics import median

import evidence
from evidence import Line, at_least, at_most, below, judged

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs/evidence.md"
DATA = pathlib.Path(os.environ.get("PENSTOCK_PROVE_DATA", ROOT / "build/prove-data")).absolute()
PEERS = pathlib.Path(os.environ.get("PENSTOCK_PEER_ENVS", ROOT / "build/peers")).absolute()
REQUIREMENTS = {"venv": "requirements-main.txt", "venv-tf": "requirements-tf.txt"}
TCMALLOC = {"LD_PRELOAD": "libtcmalloc_minimal.so.4"}
LIVE_PEERS = [  # script, environment, variables: what is fastest for each
    ("mlx_data.py", "venv", TCMALLOC),
    ("grain_loader.py", "venv", TCMALLOC),
    ("spdl_loader.py", "venv", {}),
    ("torch_loader.py", "venv", {}),
    ("dali.py", "venv", {}),
    ("tf_native.py", "venv-tf", {}),
    ("tf_librosa.py", "venv-tf", {}),
]
FIXED_SHAPE = "--split all --batch-size 16 --pad-to-fixed-length --max-mel-frames 880 --max-text-length 256".split()
LONG = {"PENSTOCK_LONG": "1"}
CLIP_FRAMES = 567  # of the clip in kernels/mel_bench.cpp

PROOFS = {}  # name: (title, function), in the order of the document


def proof(title):
    def register(function):
        PROOFS[function.__name__] = (title, function)
        return function

    return register


class Shell:
    """Runs commands in the project's folder, and keeps each as a reader would type it."""

    def __init__(self):
        self.typed = []

    def attempt(self, *words, env={}):
        words = [str(word) for word in words]
        shown = shlex.join(words)
        for path, name in ((DATA, "DATA"), (PEERS, "PEERS"), (sys.executable, "python")):
            shown = shown.replace(str(path), name)
        typed = " ".join([*(f"{key}={value}" for key, value in env.items()), shown])
        if typed not in self.typed:
            self.typed.append(typed)
        print(f"   $ {typed}", flush=True)
        return subprocess.run(words, cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True)

    def __call__(self, *words, env={}):
        """The output of a command that must succeed."""
        done = self.attempt(*words, env=env)
        if done.returncode != 0:
            print(done.stdout[-2000:] + done.stderr[-2000:], file=sys.stderr)
            raise RuntimeError(f"{pathlib.Path(words[0]).name}: exit code {done.returncode}")
        return done.stdout


# ---- what the measurements need ---------------------------------------------------------------------------------------------------------

def prepare_data():
    if not (DATA / "metadata.csv").exists():
        subprocess.run(["build/penstock", "synth", DATA, "--clips", "1000", "--seed", "1"], cwd=ROOT, check=True)


def prepare_peers():
    """The peers' Python environments, made again when their requirements change, and the allocator that some of them like best.
    Environments in a folder that the caller named are taken as they are."""
    for name, file in REQUIREMENTS.items():
        wanted, stamp = ROOT / "bench/peers/live" / file, PEERS / name / "requirements.installed"
        python = PEERS / name / "bin/python"
        ready = stamp.exists() and stamp.read_text() == wanted.read_text()
        if ready or (python.exists() and "PENSTOCK_PEER_ENVS" in os.environ):
            continue
        print(f"   making the peers' environment {name}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", PEERS / name], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", wanted], check=True)
        shutil.copy(wanted, stamp)
    if not glob.glob("/usr/lib/*/libtcmalloc_minimal.so.4"):
        as_root = [] if os.geteuid() == 0 else ["sudo"]
        subprocess.run([*as_root, "apt-get", "install", "-y", "-qq", "--no-install-recommends", "libtcmalloc-minimal4"], check=True)


def bench(shell, *options):
    return json.loads(shell("build/penstock", "bench", DATA, *FIXED_SHAPE, "--json", *options))


def middle(results, key):
    return median(result[key] for result in results)


# ---- the proofs -------------------------------------------------------------------------------------------------------------------------

@proof("the feed beside its peers, on live audio")
def live(shell, rounds=3):
    prepare_data()
    prepare_peers()
    bench(shell, "--batches", "10")  # leaves the index behind
    shell.typed.clear()
    ours, peers = [], {}
    for _ in range(rounds):
        for script, environment, variables in LIVE_PEERS:
            output = shell(PEERS / environment / "bin/python", f"bench/peers/live/{script}", DATA, env=variables)
            result = json.loads(output.splitlines()[-1])
            peers.setdefault(result["peer"], []).append(result)
            ours.append(bench(shell))
    speed = {name: middle(results, "samples_per_second") for name, results in {"Penstock": ours, **peers}.items()}
    for name, results in {"Penstock": ours, **peers}.items():
        yield Line(f"{name}: samples/s, CPU s per 1,000", "",
                   f"{speed[name]:,.0f}, {middle(results, 'cpu_seconds_per_1000'):.2f}")
    yield at_least("Penstock against the fastest peer", speed["Penstock"] / max(speed[name] for name in peers), 6, "x")
    yield at_most("CPU seconds per 1,000 samples", middle(ours, "cpu_seconds_per_1000"), 0.40, digits=3)
    outside = [sum(s["us_per_sample"] for s in run["stages"] if s["name"] != "mel") for run in ours]
    yield at_most("time of a sample outside the mel kernel", median(outside), 110, " us", 0)
    skipped = max(run["skipped"] for run in ours)
    yield judged("samples skipped, in any run", "0", str(skipped), skipped == 0)
    yield at_most("first batch after opening, index there", middle(ours, "first_batch_ms"), 100, " ms", 0)
    yield below("anonymous memory, the highest of all runs", max(run["peak_anon_mb"] for run in ours), 100, " MB", 0)
    steady = bench(shell, "--repeat", "5")
    yield below("CV of the batch time, median of 5 runs", steady["batch_ms"]["cv"], 0.20, digits=3)


@proof("the whole mel kernel against an FFT alone, on one core")
def mel(shell, rounds=5):
    kernel, fft = {}, []
    for _ in range(rounds):
        report = json.loads(shell("build/bench/bench_mel", "--benchmark_filter=mel/hifigan/", "--benchmark_format=json"))
        for result in report["benchmarks"]:
            kernel.setdefault(result["name"].rpartition("/")[2], []).append(result["per_frame"] * 1e6)
        fft.append(float(shell(sys.executable, "bench/peers/mel/torch_rfft.py", CLIP_FRAMES)))
    torch, times = median(fft), {target: median(us) for target, us in kernel.items()}
    best = min(times, key=times.get)
    yield Line("torch.fft.rfft (MKL), one thread, a frame of 1024", "", f"{torch:.3f} us")
    for target, us in times.items():
        yield Line(f"window, FFT, magnitude, filters and log of a frame, {target}", "", f"{us:.3f} us")
    yield below(f"the kernel ({best}) in times of torch's FFT", times[best] / torch, 1, "x")
    if best.startswith("AVX3"):
        yield Line("the same", "aim: half", f"{times[best] / torch:.2f}x", "reached" if times[best] <= torch / 2 else "not reached")
        yield at_most(f"AVX2 in times of {best}", times["AVX2"] / times[best], 2.5, "x")


@proof("a device that never waits")
def au(shell):
    prepare_data()
    for step, share in ((50, 0.99), (10, 0.99), (4, 0.95)):
        runs = bench(shell, "--step-ms", step, "--repeat", "3")["runs"]
        reached = median(run["au"] / run["au_ceiling"] for run in runs)
        yield judged(f"AU with steps of {step} ms", f">= {share} x the ceiling",
                     f"{reached:.4f} x ({middle(runs, 'au'):.4f} of {middle(runs, 'au_ceiling'):.4f})", reached >= share)


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
        print(done.stdout[-3000:] + done.stderr[-3000:], file=sys.stderr)
    figure = f"{passed} of {total[1] if total else '?'} passed" + (f", {skipped} skipped" if skipped else "")
    yield judged(program, "all tests pass", figure, complete)
    yield from reported


@proof("the same batches for any number of workers")
def order(shell):
    yield from run_tests(shell, "build/tests/test_feed", "--gtest_filter=FeedLong.*")


@proof("memory that stays flat")
def memory(shell):
    yield from run_tests(shell, "build/tests/test_feed", "--gtest_filter=Allocation.*")


@proof("properties over many random cases")
def properties(shell):
    for folder in ("plan", "decode", "source", "features", "feed"):
        yield from run_tests(shell, f"build/tests/test_{folder}")


@proof("the feed's threads under TSan, over many random schedules")
def threads(shell):
    shell("cmake", "--preset", "tsan")
    shell("cmake", "--build", "build-tsan", "--target", "test_feed")
    yield from run_tests(shell, "build-tsan/tests/test_feed")


@proof("the NEON kernel, under emulation")
def aarch64(shell):
    done = shell.attempt("bash", "tests/cross/aarch64.sh")
    if done.returncode != 0:
        print(done.stdout[-3000:] + done.stderr[-3000:], file=sys.stderr)
    yield judged("tests of the features, compiled for aarch64 and run by qemu-user", "all tests pass",
                 "passed" if done.returncode == 0 else f"exit code {done.returncode}", done.returncode == 0)


# ---- the document -----------------------------------------------------------------------------------------------------------------------

def prove(name):
    """Runs one proof, writes its section, and says whether every bar was met. A proof that cannot be run is a missed one."""
    title, function = PROOFS[name]
    print(f"── {name}: {title}", flush=True)
    shell, lines = Shell(), []
    try:
        for line in function(shell):
            lines.append(line)
            print(f"   {line.what:<60} {line.bar:<22} {line.figure}  {line.verdict}", flush=True)
    except (OSError, RuntimeError, subprocess.CalledProcessError, LookupError, ValueError) as error:
        print(f"   {error}", file=sys.stderr)
        lines.append(judged("the proof itself", "runs to its end", "it did not", False))
    evidence.replace_section(DOCUMENT, name, evidence.section(name, title, shell.typed, lines), PROOFS)
    return all(line.verdict != evidence.MISSED for line in lines)


def main(names):
    if names == ["list"]:
        for name, (title, _) in PROOFS.items():
            print(f"{name:<12} {title}")
        return 0
    if unknown := [name for name in names if name not in PROOFS]:
        print(f"no proof is called {', '.join(unknown)}; there are {', '.join(PROOFS)}", file=sys.stderr)
        return 2
    met = [prove(name) for name in names or PROOFS]
    print(f"{sum(met)} of {len(met)} proofs met every bar; see docs/{DOCUMENT.name}")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
