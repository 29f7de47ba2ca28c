#!/usr/bin/env python3
"""How often `penstock diagnose DIR` names the right cause, and how well it predicts.

    bench/diagnose/cases.py FOLDER [--penstock build/penstock] [--cases 100] [--healthy 20] [--seed N] [--only storage,copy]

Each case has one or two causes, put there from outside where that can be done: delays in reading and decoding (delays.c, preloaded),
other processes that take the CPUs, a slow link of the simulated device; else by settings that a user may have. The verdict is right if
the run without the named cause gains at least 80 % of what the run without the best single cause gains, in useful frames a second. The
first change that diagnose proposes is then made, and its AU compared with the predicted one. Prints a JSON object; the datasets are kept
in FOLDER for the next run."""
import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
from calm import Stolen  # noqa: E402

ROWS, CLIPS = 16, 3000
NEAR, SHARE = 0.10, 0.8
LEAST_GAIN = 0.05   # where no single cause's removal brings more, no verdict can be right or wrong
MOST_STOLEN = 0.05  # of the CPUs
NEEDS_SHORT_STEPS = {"workers", "cpu", "mel"}  # causes that make a batch take a few ms more
CAUSES = ["storage", "decode", "mel", "workers", "ring", "copy", "step", "stall", "cold", "shapes", "cpu"]
APART = [{"copy", "shapes"}, {"workers", "cpu"}, {"stall", "ring"}]  # pairs that are one, or hide each other


@dataclass
class Case:
    causes: dict                   # name: how much
    step_ms: float
    number: int = 0
    flags: dict = field(default_factory=dict)
    jitter: tuple = ()             # reads are uneven wherever a small ring is a cause, also when it is taken away

    def without(self, cause):
        """The same case when that cause is gone; what diagnose may name besides, a setting takes away."""
        left = {name: value for name, value in self.causes.items() if name != cause}
        flags = dict(self.flags)
        if cause not in self.causes:
            flags |= {"ring": {"prefetch-buffer-size": 32}, "workers": {"num-workers": 2}, "shapes": {"shapes": 4}}.get(cause, {})
        return Case(left, self.step_ms, self.number, flags, self.jitter)


def drawn(rng, number, names):
    """A case with these causes, each strong enough to matter."""
    short = bool(NEEDS_SHORT_STEPS & set(names))
    step = rng.uniform(4, 6) if short else rng.uniform(10, 25)
    mean = 0.75 * step  # of all shapes
    row_us = 1000 * mean * 2 / ROWS  # a worker's time for a row, when two just keep up
    amounts = {
        "storage": lambda: int(row_us * rng.uniform(1.5, 5)),
        "cold": lambda: int(row_us * rng.uniform(1.5, 5)),
        "decode": lambda: int(row_us * rng.uniform(1.5, 5)),
        "mel": lambda: rng.choice([2048, 4096]),
        "workers": lambda: 1,
        "ring": lambda: (int(1000 * mean * rng.uniform(1.5, 2.5)), rng.randint(20, 40)),
        "copy": lambda: mean * rng.uniform(1.5, 4),
        "step": lambda: rng.uniform(4, 8),
        "stall": lambda: (rng.randint(200, 400), rng.randint(700, 1100)),
        "shapes": lambda: rng.uniform(0.5, 3) * step,
        "cpu": lambda: rng.choice([0, 10, 19]),
    }
    causes = {name: amounts[name]() for name in names}
    return Case(causes, step, number, jitter=causes.get("ring", ()))


def causes_of(rng, number, only):
    """Of half the cases two."""
    first = only[number // 2 % len(only)] if number % 2 else only[number % len(only)]
    others = [c for c in only if c != first and not any({first, c} == pair for pair in APART)]
    return [first, rng.choice(others)] if number % 2 and others else [first]


@contextlib.contextmanager
def spinners(nice):
    """As many processes as CPUs that compute as long as we live."""
    burn = f"import os\nos.nice({nice})\nwhile os.getppid() == {os.getpid()}:\n for _ in range(10**6): pass"
    running = [subprocess.Popen([sys.executable, "-c", burn]) for _ in range(os.cpu_count())] if nice is not None else []
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


class Laboratory:
    def __init__(self, folder, program):
        self.folder, self.program, self.disturbed = folder, program, 0
        folder.mkdir(parents=True, exist_ok=True)
        for kind in ("wav", "flac"):
            if not (folder / kind / "metadata.csv").exists():
                self.run([program, "synth", folder / kind, "--voice", "tone", "--clips", CLIPS, "--format", kind, "--seed", 1])
            self.run([program, "info", folder / kind, "--json"])  # its index
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", HERE / "delays.c", "-o", folder / "delays.so", "-ldl"], check=True)

    @staticmethod
    def run(words, codes=(0,), env=None):
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True, env={**os.environ, **(env or {})})
        if done.returncode not in codes:
            sys.exit(f"{words}: {done.returncode}\n{done.stderr}")
        return done.stdout

    def diagnose(self, case, batches, *more):
        """One run of diagnose under a case's circumstances. When a hypervisor gave our CPUs to others meanwhile, it is made again."""
        for _ in range(8):
            with Stolen() as stolen:
                result = self.diagnose_once(case, batches, *more)
            if stolen.share < MOST_STOLEN:
                break
            self.disturbed += 1
            time.sleep(3)
        return result

    def diagnose_once(self, case, batches, *more):
        """With a cache of its own, which is empty."""
        causes, flags = case.causes, {"num-workers": 2, "batch-size": ROWS, **case.flags}
        env = {"LD_PRELOAD": str(self.folder / "delays.so")}
        step_ms, data = case.step_ms, self.folder / ("flac" if "decode" in causes else "wav")
        command = []
        if "storage" in causes:
            env["SLOW_READ_US"] = str(causes["storage"])
        if "cold" in causes:
            env["SLOW_FIRST_READ_US"] = str(causes["cold"])
        if "decode" in causes:
            env["SLOW_DECODE_US"] = str(causes["decode"])
        if "mel" in causes:
            flags |= {"mel-precision": "exact", "n-fft": causes["mel"], "win-length": causes["mel"]}
        if "workers" in causes:
            flags["num-workers"] = 1
        if "ring" in causes:
            flags.setdefault("prefetch-buffer-size", 2)
        if "copy" in causes:
            flags["device"] = "simulated"
            largest_bytes = ROWS * 872 * 80 * 4
            env["PENSTOCK_SIMULATED_BANDWIDTH"] = str(largest_bytes / (causes["copy"] / 0.75 * 1e-3))
        if "step" in causes:
            step_ms *= causes["step"]
        if "stall" in causes:
            env["STALL_MS"], env["STALL_EVERY_MS"] = map(str, causes["stall"])
        if "shapes" in causes:
            flags["shapes"] = "dynamic"
            command += ["--compile-ms", causes["shapes"]]
        if case.jitter:
            env["JITTER_US"], env["JITTER_IN_1000"] = map(str, case.jitter)
        for file in data.glob("wavs/*"):
            file.read_bytes()  # what is cold is so by intent, and not since the kernel had better use for its memory
        with tempfile.TemporaryDirectory(dir=self.folder) as cache, spinners(causes.get("cpu")):
            for index in (data / ".penstock").glob("index-*"):
                shutil.copy(index, cache)
            words = [self.program, "diagnose", data, "--json", "--num-batches", batches, "--step-ms", step_ms, "--cache-dir", cache, *command]
            for name, value in flags.items():
                words += [f"--{name}", value]
            return json.loads(self.run([*words, *more, *(["-o", f"{cache}/applied.yaml"] if more else [])], (0, 1), env))


def judge(lab, case):
    """Everything about one case."""
    base = lab.diagnose(case, 50, "--apply")
    verdict, first = base["verdict"], (base["remedies"] or [None])[0]
    rates = {name: lab.diagnose(case.without(name), 40) for name in {*case.causes, verdict}}
    gains = {name: r["frames_per_second"] / base["frames_per_second"] - 1 for name, r in rates.items()}
    if "step" not in case.causes:
        gains.pop("step", None)
    best = max(gains.values(), default=0)
    right = gains.get(verdict, 0) >= SHARE * best or (base["healthy"] and best < 0.05)
    predicted = measured = None
    if first and first["settings"]:
        predicted, measured = first["au"], base["applied"]["au"]
    elif first and first["cause"] in rates:  # not a setting: the run without it shows it
        predicted, measured = first["au"], rates[first["cause"]]["au"]
    return {"number": case.number, "causes": case.causes, "step_ms": case.step_ms, "verdict": verdict, "au": base["au"], "gains": gains,
            "right": right, "first": first and first["what"], "predicted": predicted, "measured": measured,
            "near": predicted is None or abs(predicted - measured) <= NEAR, "why": base["why"],
            "model": {c["cause"]: c["batch_ms"] for c in base["causes"]}, "demand_ms": base["demand_ms"], "row_us": base["row_us"]}


def healthy_case(rng, number):
    flags = {"num-workers": rng.choice([1, 2, "auto"]), "prefetch-buffer-size": rng.choice([4, 8, 16]), "shapes": rng.choice([1, 4, 8]),
             "device": rng.choice(["cpu", "simulated"])}
    return Case({}, rng.uniform(15, 40), number, flags)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--penstock", default="build/penstock")
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--healthy", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", default=",".join(CAUSES))
    a = parser.parse_args()
    seed = a.seed if a.seed is not None else random.SystemRandom().randrange(10**6)
    rng = random.Random(seed)
    lab = Laboratory(a.folder, a.penstock)
    results, well, undecidable = [], [], 0
    while len(results) < a.cases:
        case = drawn(rng, len(results), causes_of(rng, len(results), a.only.split(",")))
        r = judge(lab, case)
        if max(r["gains"].values(), default=0) < LEAST_GAIN and "step" not in case.causes:
            undecidable += 1
            continue
        results.append(r)
        with (a.folder / "results.jsonl").open("a") as log:  # for who wants to see more of a case, while the others run
            log.write(json.dumps({"seed": seed, **r}) + "\n")
        print(f"{r['number']:>3} {'+'.join(case.causes):<16} {r['verdict']:<9} {'right' if r['right'] else 'WRONG':<6} AU {r['au']:.2f}, "
              f"{r['first']}: {r['predicted'] or 0:.2f} -> {r['measured'] or 0:.2f}{'' if r['near'] else ' FAR'}", file=sys.stderr, flush=True)
    for number in range(a.healthy):
        well.append(lab.diagnose(healthy_case(rng, number), 50))
        print(f"{number:>3} healthy          {well[-1]['verdict']:<9} AU {well[-1]['au']:.2f}", file=sys.stderr, flush=True)
    print(json.dumps({"seed": seed, "cases": len(results), "right": sum(r["right"] for r in results), "near": sum(r["near"] for r in results),
                      "healthy": sum(r["healthy"] for r in well), "of": len(well), "undecidable": undecidable,
                      "disturbed": lab.disturbed, "results": results}, indent=1))


if __name__ == "__main__":
    main()
