#!/usr/bin/env python3
"""Measures every bar and writes docs/evidence.md: `prove.py list`, `prove.py NAME...`, or `prove.py` for all of them.

A proof is a generator of lines (what, bar, figure, met or missed) that runs its commands through a Shell. The exit code is 1 when a bar
was missed."""
import glob
import importlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from statistics import median

import evidence
import prove_guard
import prove_scan
from evidence import Line, at_least, at_most, below, judged
from proving import DATA, DOCUMENT, LONG, PEERS, PROOFS, PYTHON, ROOT, Shell, prepare_data, proof

NPY, LARGE, OVERFIT = (DATA.with_name(DATA.name + suffix) for suffix in ("-npy", "-large", "-overfit"))
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
PYTHON_SHARES = {  # framework: of the C++ feed's speed, at least; None: for information
    "live": {"numpy": 0.9, "torch": 0.9, "jax": 0.6, "tf": 0.6},
    "cached": {"numpy": 0.8, "torch": 0.8, "jax": None, "tf": None},
}
CACHE_TYPES = ("float32", "float16")
LARGE_CLIPS, LARGE_EPOCH = 13_100, 818  # clips, and the batches of 16 in them: larger than any cache of a CPU
CLIP_FRAMES = 567  # of the clip in kernels/mel_bench.cpp


# ---- what the measurements need ---------------------------------------------------------------------------------------------------------

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


def bench(shell, *options, data=DATA):
    return json.loads(shell("build/penstock", "bench", data, *FIXED_SHAPE, "--json", *options))


def build_cache(shell, data, *options):
    return json.loads(shell("build/penstock", "cache", "build", data, "--json", *options))


def bench_cached(shell, kind, batches, data=DATA, *options):
    return bench(shell, "--mode", "cached", "--cache-type", kind, "--batches", batches, *options, data=data)


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


# ---- the proofs -------------------------------------------------------------------------------------------------------------------------

@proof("the feed beside its peers, on live audio")
def live(shell, rounds=3):
    prepare_data()
    prepare_peers()
    bench(shell, "--batches", "10")  # leaves the index behind
    shell.typed.clear()
    results = take_turns(shell, "live", DATA, rounds, {"Penstock": lambda: bench(shell)})
    ours = results["Penstock"]
    yield from speeds(results)
    yield at_least("Penstock against the fastest peer",
                   middle(ours, "samples_per_second") / fastest(results, ["Penstock"]), 6, "x")
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


def utilisation(shell, steps, *options):
    for step, share in steps:
        runs = bench(shell, "--step-ms", step, "--repeat", "3", *options)["runs"]
        reached = median(run["au"] / run["au_ceiling"] for run in runs)
        yield judged(f"AU with steps of {step} ms", f">= {share} x the ceiling",
                     f"{reached:.4f} x ({middle(runs, 'au'):.4f} of {middle(runs, 'au_ceiling'):.4f})", reached >= share)


@proof("a device that never waits")
def au(shell):
    prepare_data()
    yield from utilisation(shell, ((50, 0.99), (10, 0.99), (4, 0.95)))


def share_of_memcpy(kind, runs):
    """Lines: the speed in shares of what the same number of threads copy, measured in the same run; and that nothing was computed."""
    share = median(run["samples_per_second"] / run["limits"]["memcpy_rows_per_s"] for run in runs)
    yield at_least(f"{kind}: share of the memcpy limit", share, 0.70)
    yield Line("the same", "aim: 0.9", f"{share:.2f}", "reached" if share >= 0.9 else "not reached")
    computed = max(run["cache"]["misses"] + run["cache"]["recomputed"] for run in runs)
    hits = min(run["cache"]["hits"] for run in runs)
    yield judged(f"{kind}: misses and recomputed records, in any run", "0", f"{computed} (at least {hits:,} hits)",
                 computed == 0 and hits > 0)


@proof("the feed beside its peers, on cached features")
def cached(shell, rounds=3):
    prepare_data()
    prepare_peers()
    for kind in CACHE_TYPES:
        build_cache(shell, DATA, "--cache-type", kind)
    shell("build/penstock", "cache", "export", DATA, "--npy", NPY)
    ours = {f"Penstock, {kind}": lambda kind=kind: bench_cached(shell, kind, 6250) for kind in CACHE_TYPES}
    results = take_turns(shell, "cached", NPY, rounds, ours)
    yield from speeds(results)
    for name in ours:
        speed = middle(results[name], "samples_per_second")
        yield at_least(f"{name}: against the fastest peer", speed / fastest(results, ours), 3, "x")
        yield judged(f"{name}: samples/s", "> 40,000", f"{speed:,.0f}", speed > 40_000)
        yield at_most(f"{name}: CPU seconds per 1,000 samples", middle(results[name], "cpu_seconds_per_1000"), 0.05, digits=4)
        yield from share_of_memcpy(name, results[name])


@proof("13,100 cached clips, more than any cache of the CPU holds")
def cached_large(shell, rounds=3, epochs=10):
    prepare_large()
    for kind in CACHE_TYPES:
        build_cache(shell, LARGE, "--cache-type", kind)
        bench_cached(shell, kind, LARGE_EPOCH, LARGE)  # into the page cache
    runs = {kind: [] for kind in CACHE_TYPES}
    for _ in range(rounds):
        for kind in CACHE_TYPES:
            runs[kind].append(bench_cached(shell, kind, epochs * LARGE_EPOCH, LARGE))
    yield from speeds(runs)
    for kind in CACHE_TYPES:
        yield from share_of_memcpy(kind, runs[kind])


@proof("a device that never waits, on cached features")
def cached_au(shell):
    prepare_data()
    build_cache(shell, DATA)
    yield from utilisation(shell, ((10, 0.99), (1, 0.99)), "--mode", "cached")


def timed(shell, *words, **options):
    start = time.perf_counter()
    shell(*words, **options)
    return time.perf_counter() - start


@proof("a cache is built as fast as the feed delivers")
def build(shell, rounds=3):
    prepare_large()
    folder, file = LARGE / "build", LARGE / "dd"
    live, built, plain = [], {kind: [] for kind in CACHE_TYPES}, []
    for _ in range(rounds):
        for kind in CACHE_TYPES:
            live.append(bench(shell, "--batches", LARGE_EPOCH, "--no-limits", data=LARGE))
            try:
                built[kind].append(build_cache(shell, LARGE, "--cache-type", kind, "--cache-dir", folder))
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        count = built["float32"][-1]["bytes"] >> 20
        plain.append(timed(shell, "dd", "if=/dev/zero", f"of={file}", "bs=1M", f"count={count}", "conv=fsync"))
        file.unlink()
    speed = middle(live, "samples_per_second")
    yield Line("the live feed", "", f"{speed:,.0f} samples/s")
    for kind, runs in built.items():
        yield Line(f"a build, {kind}: samples/s, seconds until all is on the disk, bytes", "",
                   f"{middle(runs, 'samples_per_second'):,.0f}, {middle(runs, 'seconds'):.1f}, {middle(runs, 'bytes') / 1e9:.2f} GB")
        yield at_least(f"a build, {kind}, in times of the live feed", middle(runs, "samples_per_second") / speed, 0.85, "x")
    yield Line("dd conv=fsync of the float32 bytes to the same disk", "", f"{median(plain):.1f} s")
    yield Line("the profile of a build", "", "docs/decisions/0010-what-a-build-costs.md")


class MemoryGroup:
    """A cgroup of our own: all that runs in it shares so many bytes of memory, page cache included. Needs root."""

    def __init__(self, limit):
        root = pathlib.Path("/sys/fs/cgroup")
        self.version = 2 if (root / "cgroup.controllers").exists() else 1
        own = re.search(r"^\d+:memory:/(.*)$", pathlib.Path("/proc/self/cgroup").read_text(), re.MULTILINE)
        # v1: inside the group that we are in; v2 has no processes beside groups
        self.folder = root / "memory" / own[1] / "penstock-prove" if own else root / "penstock-prove"
        self.folder.mkdir(exist_ok=True)
        try:
            (self.folder / ("memory.max" if self.version == 2 else "memory.limit_in_bytes")).write_text(str(limit))
        except OSError:  # no memory controller here
            self.folder.rmdir()
            raise

    def __call__(self, *words):
        """The words of a command that runs in the group."""
        return "sh", "-c", f'echo $$ >{self.folder}/cgroup.procs && exec "$@"', "sh", *words

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.rmdir()


@proof("a dataset of three times the memory streams from the disk")
def stream(shell, rounds=3):
    prepare_large()
    packs = build_cache(shell, LARGE, "--cache-type", "float32")["packs"]
    shards = sorted(shard for pack in packs for shard in pathlib.Path(pack).glob("*.pack"))
    total = sum(shard.stat().st_size for shard in shards)
    try:
        group = MemoryGroup(total // 3)
    except OSError as error:
        yield judged("a memory limit for the feed", "a cgroup", f"cannot be set: {error.strerror}", False)
        return

    def drop():
        for shard in shards:
            shell("dd", f"if={shard}", "iflag=nocache", "count=0")  # out of the page cache

    def dd(*options):
        drop()
        return total / sum(timed(shell, *group("dd", f"if={shard}", "of=/dev/null", *options)) for shard in shards)

    plain, direct, ours = [], [], []
    with group:
        for _ in range(rounds):
            plain.append(dd("bs=1M"))
            direct.append(dd("bs=16M", "iflag=direct"))
            drop()
            run = bench_cached(lambda *words: shell(*group(*words)), "float32", LARGE_EPOCH, LARGE, "--no-limits")
            ours.append(run["cache"]["bytes_read"] / run["seconds"])
    yield Line(f"the packs, and the memory given (cgroup v{group.version})", "", f"{total / 1e9:.2f} GB, {total / 3e9:.2f} GB")
    for what, rates in (("dd bs=1M of the shards", plain), ("dd bs=16M iflag=direct of the shards", direct),
                        ("the feed, one epoch in its random order", ours)):
        yield Line(f"{what}, in that memory", "", f"{median(rates) / 1e6:,.0f} MB/s")
    yield at_least("the feed in times of dd bs=1M", median(ours) / median(plain), 0.80, "x")


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


@proof("a device whose copies are hidden (simulated: 12 GB/s, 10 us)")
def device(shell, rounds=5):
    prepare_data()
    on, off = [], []
    for _ in range(rounds):
        on.append(bench(shell, "--device", "simulated", "--step-ms", "10"))
        off.append(bench(shell, "--device", "simulated", "--step-ms", "10", "--disable-overlap"))
    yield Line("a copy, the filling of a batch", "",
               f"{median(r['parts']['copy']['ms'] for r in on):.2f} ms, {median(r['parts']['fill']['ms'] for r in on):.2f} ms")
    yield at_least("AU in times of its ceiling, step 10 ms, live", median(r["au"] / r["au_ceiling"] for r in on), 0.99, digits=4)
    yield at_least("copy time that was hidden", median(r["parts"]["copy"]["hidden"] for r in on), 0.95, digits=3)
    yield Line("without overlap: AU in times of its ceiling, hidden", "", f"{median(r['au'] / r['au_ceiling'] for r in off):.4f}, "
               f"{median(r['parts']['copy']['hidden'] for r in off):.3f}")
    runs = bench(shell, "--step-ms", "50", "--repeat", "3")["runs"]
    yield at_most("CPU of everything, step 50 ms, live, in cores", median(r["cpu_share"] for r in runs), 0.20, digits=3)
    yield Line("workers, depth that were enough", "", f"{runs[-1]['workers']}, {runs[-1]['depth']}")
    ablation = json.loads(shell("build/penstock", "bench", DATA, *FIXED_SHAPE, "--ablate", "--step-ms", "10", "--json"))["ablation"]
    for row in ablation:
        yield Line(f"without {row['off']}" if row["off"] else "with everything", "",
                   f"AU {row['au']:.4f}, CPU {row['cpu_seconds_per_1000']:.3f} s per 1,000")


@proof("the autotuner while step and storage change")
def autotune(shell):
    prepare_data()
    for w in json.loads(shell("build/bench/feed_weather", DATA)):
        name = f"step {w['step_ms']:g} ms" + (f", reads {w['read_delay_us'] / 1000:g} ms slower" if w["read_delay_us"] else "")
        best = max(f["au"] for f in w["fixed"])
        enough = min(f["workers"] for f in w["fixed"] if f["au"] >= 0.99 * best)
        yield at_least(f"{name}: AU from the 50th batch on, in times of the best fixed setting's", w["au"] / best, 0.99, digits=4)
        yield judged(f"{name}: workers (depth {w['depth']})", f"<= {enough + 1}, one more than the best fixed", str(w["workers"]),
                     w["workers"] <= enough + 1)
        yield at_most(f"{name}: changes in the next 1,000 batches", w["changes"], 2, digits=0)


@proof("what tune predicts, and what then happens")
def tune(shell):
    prepare_data()
    done = shell.attempt(sys.executable, "bench/tune_check.py", DATA, "--penstock", "build/penstock", "--repeat", "3", "--json")
    check = json.loads(done.stdout)
    lines = check["configurations"]
    for c in lines:
        yield Line(f"{c['mode']}, {c['workers']} workers, depth {c['depth']}, {c['shapes']} shapes, batch {c['batch']}, step {c['step_ms']:.2f} ms: "
                   "predicted, measured", "", f"{c['predicted']:.3f}, {c['measured']:.3f} ({c['stolen']:.1%} of the CPU time taken by the hypervisor, a frame {c['drift']:+.0%} CPU time)")
    yield at_most(f"largest difference over {len(lines)} configurations", check["largest_difference"], 0.05, digits=3)
    yield judged("measured between 0.2 and 0.9", f">= {len(lines) // 2}", str(check["between"]), 2 * check["between"] >= len(lines))
    yield Line("the profile of waking and waiting between batches", "", "docs/decisions/0014-how-tune-predicts.md")


@proof("a thread that launches work every 2 ms, beside the feed at full speed")
def launcher(shell):
    prepare_data()
    pairs = json.loads(shell("build/bench/feed_launcher", DATA))
    for key, name in (("alone_us", "alone"), ("feed_us", "beside the feed"), ("spinners_us", "beside spinners of nice 19"),
                      ("copiers_us", "beside threads of nice 19 that copy memory")):
        yield Line(f"p99 of the wake-up delay {name}, of 5 runs", "", ", ".join(f"{p[key]:.0f}" for p in pairs) + " us")
    counted = min(value for pair in pairs for key, value in pair.items() if key.endswith("_counted"))
    yield Line("wake-ups that count, of the run with the fewest: while the hypervisor took no CPU time", "", f"{counted:.0%}")
    more = median(p["feed_us"] - p["spinners_us"] for p in pairs)
    yield judged("how much more the p99 rises beside the feed than beside the spinners, median of the pairs", "<= 0 us", f"{more:.0f} us",
                 more <= 0)
    copying = median(p["feed_us"] - p["copiers_us"] for p in pairs)
    yield Line("the same against the threads that copy memory", "", f"{copying:.0f} us")
    yield Line("the profile of a wake-up", "", "docs/decisions/0005-workers-give-way.md")


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


@proof("the CUDA code over thousands of random schedules of the stand-in, and with each of its waits left out")
def schedules(shell):
    yield from run_tests(shell, "build/tests/test_device")


@proof("a cache that is interrupted or damaged never serves a wrong byte")
def interrupted(shell):
    yield from run_tests(shell, "build/tests/test_cache")
    yield from run_tests(shell, "build/tests/test_feed", "--gtest_filter=Cache*")
    killed = shell.attempt(sys.executable, "-m", "pytest", "-q", "tests/python/test_cache_cli.py", "-k", "killed", env=LONG)
    yield judged("`penstock cache build` killed (kill -9) at 200 random moments, then built on and exported",
                 "as an uninterrupted build", killed.stdout.strip().splitlines()[-1].strip("= "), killed.returncode == 0)


@proof("the threads of feed and device under TSan, over many random schedules")
def threads(shell):
    shell("cmake", "--preset", "tsan")
    for folder in ("device", "feed"):
        shell("cmake", "--build", "build-tsan", "--target", f"test_{folder}")
        yield from run_tests(shell, f"build-tsan/tests/test_{folder}")


@proof("the NEON kernel, under emulation")
def aarch64(shell):
    done = shell.attempt("bash", "tests/cross/aarch64.sh")
    if done.returncode != 0:
        print(done.stdout[-3000:], file=sys.stderr)
    yield judged("tests of the features, compiled for aarch64 and run by qemu-user", "all tests pass",
                 "passed" if done.returncode == 0 else f"exit code {done.returncode}", done.returncode == 0)


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


# ---- the trainer

TRAIN = "--batch-size 16 --shapes 4 --model-size nano --val-every 0 --log-every 0".split()
MODES = {"live": "runtime", "cached": "auto"}  # preprocessing_mode
TRAIN_WARM_UP = 5  # updates that do not count: as in bench/peers/train


def train_lines(shell, *options):
    """The log's step lines of a new run."""
    run = pathlib.Path("build/prove-run")
    shutil.rmtree(ROOT / run, ignore_errors=True)
    shell("build/penstock", "train", DATA, "--run", run, *TRAIN, *options)
    lines = [json.loads(line) for line in (ROOT / run / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "step"]


def total(lines, key):
    return sum(line[key] for line in lines)


def elapsed_ms(line):
    return line["step_ms"] / line["au"]


@proof("three epochs of training: no retraces, steady steps, no waiting")
def training(shell, epochs=3):
    prepare_data()
    build_cache(shell, DATA)
    for source, mode in MODES.items():
        lines = train_lines(shell, "--epochs", epochs, "--preprocessing-mode", mode)
        yield judged(f"{source}: retraces in {len(lines)} steps", "0", str(lines[-1]["retraces"]), lines[-1]["retraces"] == 0)
        yield at_least(f"{source}: AU", total(lines, "step_ms") / sum(map(elapsed_ms, lines)), 0.99, digits=4)
        yield at_most(f"{source}: data_ms as a share of step_ms", 100 * total(lines, "data_ms") / total(lines, "step_ms"), 1, " %", 3)
        for shape in json.loads(shell("build/bench/train_steadiness", DATA, mode, len(lines))):
            cv, constant = 100 * shape["cv"], 100 * shape["constant_cv"]
            yield judged(f"{source}: CV of the {shape['ms']:.0f} ms of a step with {shape['frames']} frames, over {shape['batches']}",
                         "< 6 %, or <= 1.2x a constant batch's", f"{cv:.1f} %, constant batch {constant:.1f} %",
                         cv < 6 or cv <= 1.2 * constant)


def torch_loop(shell, source, shapes, steps):
    return json.loads(shell(sys.executable, "bench/peers/train/torch_loop.py", DATA, source, shapes, steps, env=PYTHON))


@proof("the trainer beside the same model in a PyTorch loop")
def train_speed(shell, rounds=5, steps=30):
    prepare_data()
    # Those that are compared stand side by side, so that the machine's slow minutes hit both.
    loops = {"our feed, 4 shapes": ("feed", 4), "our feed, fixed padding": ("feed", "fixed"), "DataLoader, fixed padding": ("loader", "fixed")}
    results = {"penstock train": [], **{name: [] for name in loops}}
    for _ in range(rounds):
        lines = train_lines(shell, "--steps", TRAIN_WARM_UP + steps)[TRAIN_WARM_UP:]
        frames = [line["frames_per_s"] * elapsed_ms(line) / 1e3 for line in lines]
        padded = [n / (1 - line["padding"]) for n, line in zip(frames, lines)]
        results["penstock train"].append({"frames_per_second": sum(frames) / sum(map(elapsed_ms, lines)) * 1e3,
                                          "padding": 1 - sum(frames) / sum(padded), "seconds": [elapsed_ms(line) / 1e3 for line in lines]})
        for name, (source, shapes) in loops.items():
            results[name].append(torch_loop(shell, source, shapes, steps))

    def times(name, other, key=lambda run: run["frames_per_second"]):
        return median(key(a) / key(b) for a, b in zip(results[name], results[other]))

    def undisturbed(name):
        """The seconds of a run in which each step takes the median of what it took in all: batch i is the same in every run."""
        return sum(median(step) for step in zip(*(run["seconds"] for run in results[name])))

    for name, runs in results.items():
        kind = "" if name == "penstock train" else "PyTorch loop, "
        yield Line(f"{kind}{name}: valid frames/s, padding", "", f"{middle(runs, 'frames_per_second'):,.0f}, {100 * middle(runs, 'padding'):.1f} %")
    shaped, fixed, loader = loops
    gain = times("penstock train", loader)
    predicted = times("penstock train", loader, lambda run: 1 - run["padding"])
    yield at_least("valid frames/s against the DataLoader with fixed padding", gain, 1.25, "x")
    yield at_least(f"share of the {predicted:.2f}x that padding predicts", gain / predicted, 0.95)
    yield Line("of which padding, feed and launch bring", "", f"{times(shaped, fixed):.2f}x, {times(fixed, loader):.2f}x, "
                                                               f"{times('penstock train', shaped):.2f}x")
    yield at_least("with identical batches", times("penstock train", shaped), 0.97, "x")
    yield Line("the same, from each step's median over the rounds", "", f"{undisturbed(shaped) / undisturbed('penstock train'):.2f}x")


@proof("a training that begins")
def train_start(shell, rounds=5):
    prepare_data()
    bench(shell, "--batches", "10")  # leaves the index behind
    shell.typed.clear()
    first = []
    for _ in range(rounds):
        began = time.time()
        first.append(train_lines(shell, "--steps", 1)[0]["t"] - began)
    yield at_most("from the command to the end of the first optimizer step", median(first), 10, " s", 1)


@proof("eight utterances, learned by heart and spoken")
def overfit(shell):
    prepare_environments("venv-train")
    found = json.loads(shell(PEERS / "venv-train/bin/python", "bench/train/overfit.py", OVERFIT).splitlines()[-1])
    sentences = found["sentences"]
    for s in sentences:
        yield Line(f"“{s['text']}”: distance to its own target, to the nearest other; length", "",
                   f"{s['own']:.2f}, {s['nearest']:.2f}; {s['length']:.3f}")
    yield Line(f"training of {found['steps']:,} steps: seconds, CPU seconds", "", f"{found['seconds']:.0f}, {found['cpu_seconds']:.0f}")
    yield below("DTW mel distance to the own target in times of that to the nearest other, the worst", found["ratio"], 1 / 3, "x", 3)
    yield at_most("length against the target's, the farthest off", found["length_error"], 0.1, digits=3)
    yield judged("right sentence picked by pocketsphinx, of eight", ">= 7", str(found["heard_said"]),
                 len(sentences) == 8 and found["heard_said"] >= 7)
    yield Line("the same for the clips themselves, for Griffin-Lim of their true mels", "",
               f"{found['heard_original']}, {found['heard_ceiling']}")


proof(prove_guard.TITLE)(prove_guard.guard)


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


proof("what starves a device, found in Python sources")(prove_scan.scan)


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


for more in sorted((ROOT / "bench").glob("prove_*.py")):  # proofs of other subjects, a file each
    importlib.import_module(more.stem)


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
