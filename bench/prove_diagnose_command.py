"""Proofs of `penstock diagnose -- COMMAND`: small real loops in three frameworks, and what watching them costs."""
import json
import sys
import time
from statistics import median

from evidence import Line, at_most, judged
from proving import Shell, proof

SCRIPTS = [f"{framework}_{kind}" for kind in ("input", "sync", "compile", "healthy") for framework in ("torch", "tf", "jax")]


@proof("Python loops, told apart while they run")
def diagnose_command(shell: Shell):
    first, right, wrong = int(time.time()) % 100_000, 0, []
    runs = [(script, seed) for seed in (first, first + 1) for script in SCRIPTS]
    for script, seed in runs:
        done = shell.attempt("build/penstock", "diagnose", "--json", "--", sys.executable, f"bench/diagnose/{script}.py", "--seed", seed)
        found = json.loads(done.stdout)
        if found["verdict"] == script.split("_")[1]:
            right += 1
        else:
            shares = ", ".join(f"{name} {share:.2f}" for name, share in found["shares"].items() if share > 0.05)
            wrong.append(Line(f"wrong: {script}, seed {seed}", "", f"{found['verdict']}; {shares}"))
    yield judged("input-bound, sync-bound, compile-bound and healthy scripts (PyTorch, TensorFlow, JAX) called so",
                 ">= 18 of 20", f"{right} of {len(runs)}", right >= 0.9 * len(runs))
    yield from wrong


@proof("what watching a Python loop costs it")
def diagnose_cost(shell: Shell):
    ratios = []
    for _ in range(11):
        alone = float(shell(sys.executable, "bench/diagnose/fixed_work.py"))
        watched = shell.attempt("build/penstock", "diagnose", "--", sys.executable, "bench/diagnose/fixed_work.py")
        ratios.append(float(watched.stdout.split()[0]) / alone)
    yield at_most("CPU time of 2,500 small steps, watched against alone, median of 11 pairs", median(ratios), 1.01, "x", digits=4)
    yield Line("lowest and highest pair", "", f"{min(ratios):.3f}x, {max(ratios):.3f}x")
