"""Proofs of the Python package: its speed beside C++ and its peers, its start, its versions and its wheel."""
import json
import re
import sys
from statistics import median

from evidence import Line, at_least, below, judged
from proving import (
    DATA,
    LARGE,
    LARGE_CLIPS,
    NPY,
    PEER_SCRIPTS,
    PYTHON,
    ROOT,
    bench,
    build_cache,
    fastest,
    middle,
    prepare_data,
    prepare_large,
    prepare_peers,
    proof,
    run_peer,
    speeds,
    timed,
)

PYTHON_SHARES = {  # framework: of the C++ feed's speed, at least; None: for information
    "live": {"numpy": 0.9, "torch": 0.9, "jax": 0.6, "tf": 0.6},
    "cached": {"numpy": 0.8, "torch": 0.8, "jax": None, "tf": None},
}


def iterate(shell, framework, task):
    return json.loads(shell(sys.executable, "bench/python/iterate.py", framework, DATA, task, env=PYTHON).splitlines()[-1])


def python_task(shell, task, data, rounds, times_of_peer, *options):
    """Each framework right after the C++ feed, whose speed is its measure, and the peers that are fastest somewhere."""
    shares = PYTHON_SHARES[task]
    results = {"C++": [], **{framework: [] for framework in shares}}
    for _ in range(rounds):
        for peer in PEER_SCRIPTS[task]:
            if peer[0] in ("mlx_data.py", "grain_loader.py", "torch_loader.py"):
                result = run_peer(shell, task, data, *peer)
                results.setdefault(result["peer"], []).append(result)
        for framework in shares:
            results["C++"].append(bench(shell, "--no-limits", *options))
            results[framework].append(iterate(shell, framework, task))
    yield from speeds({f"{task}, {name}": runs for name, runs in results.items()})
    best = fastest(results, ["C++", *shares])
    for place, (framework, share) in enumerate(shares.items()):
        ours, beside = results[framework], results["C++"][place::len(shares)]
        reached = median(a["samples_per_second"] / b["samples_per_second"] for a, b in zip(ours, beside))
        times = middle(ours, "samples_per_second") / best
        if share is None:
            yield Line(f"{task}, {framework}: share of the C++ feed's speed", "", f"{reached:.2f}")
        else:
            yield at_least(f"{task}, {framework}: share of the C++ feed's speed", reached, share)
        if framework in ("numpy", "torch"):
            yield at_least(f"{task}, {framework}: against the fastest peer", times, times_of_peer, "x")
        else:
            yield Line(f"{task}, {framework}: against the fastest peer", "", f"{times:.2f}x")
        yield below(f"{task}, {framework}: CPU time of the Python thread, a batch", middle(ours, "thread_us_per_batch"), 100, " us", 0)


@proof("the feed in Python, beside C++ and the fastest peers")
def python(shell, rounds=5):
    prepare_data()
    prepare_peers()
    build_cache(shell, DATA)
    shell("build/penstock", "cache", "export", DATA, "--npy", NPY)
    yield from python_task(shell, "live", DATA, rounds, 5, "--batches", 1500)
    yield from python_task(shell, "cached", NPY, rounds, 2.5, "--batches", 25_000, "--mode", "cached")
    for framework in ("jax", "tf"):
        for what, us in json.loads(shell(sys.executable, "bench/python/floor.py", framework, DATA, env=PYTHON)).items():
            yield Line(f"without a feed, in warm caches: {what}", "", f"{us:.0f} us")


@proof("a Python process that begins")
def python_start(shell, rounds=15):
    prepare_large()
    bench(shell, "--batches", "10", data=LARGE)  # leaves the index behind
    shell.typed.clear()
    empty, importing, opening = [], [], []
    for _ in range(rounds):
        empty.append(timed(shell, sys.executable, "-c", "pass", env=PYTHON) * 1e3)
        importing.append(timed(shell, sys.executable, "-c", "import penstock", env=PYTHON) * 1e3)
        opening.append(json.loads(shell(sys.executable, "bench/python/first_batch.py", LARGE, env=PYTHON)))
    yield Line("a Python that does nothing", "", f"{median(empty):.0f} ms")
    yield below("import penstock, above that", median(importing) - median(empty), 100, " ms", 0)
    yield below(f"first batch of {LARGE_CLIPS:,} clips from audio, opening included", middle(opening, "first_batch_ms"), 300, " ms", 0)


@proof("the module with every Python that can be had")
def versions(shell):
    done = shell.attempt(sys.executable, "tests/versions.py")
    lines = re.findall(r"^Python (\S+): (.*)$", done.stdout, re.MULTILINE)
    if done.returncode != 0:
        print(done.stdout[-3000:], file=sys.stderr)
    for version, outcome in lines:
        passed = re.match(r"\d+ passed", outcome.strip("= "))
        yield judged(f"Python {version}", "all tests pass", outcome.strip("= ") if passed else "failed", passed)
    yield judged("versions of Python that there were", ">= 1", str(len(lines)), done.returncode == 0 and lines)


@proof("a wheel that a clean environment can install")
def wheel(shell):
    seconds = timed(shell, "./run", "wheel", "anew")
    (file,) = ROOT.glob("build/wheel/*.whl")
    yield Line("all compiled from the sources, and repaired", "", f"{seconds:.0f} s")
    yield Line(file.name, "", f"{file.stat().st_size / 1e6:.1f} MB")
    done = shell.attempt(sys.executable, "-m", "pytest", "-q", "tests/python/test_wheel.py", env={"PENSTOCK_WHEEL": "build/wheel/*.whl"})
    yield judged("installed where there is no compiler, and no library but glibc and the C++ runtime is the system's", "all tests pass",
                 done.stdout.strip().splitlines()[-1].strip("= "), done.returncode == 0)
