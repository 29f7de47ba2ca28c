"""Proofs of the cache: its speed beside its peers and the machine's limits, what a build costs, and that nothing damages it."""
import pathlib
import re
import shutil
import sys
from statistics import median

from evidence import Line, at_least, at_most, judged
from proving import (
    DATA,
    LARGE,
    LARGE_EPOCH,
    LONG,
    NPY,
    bench,
    build_cache,
    fastest,
    middle,
    prepare_data,
    prepare_large,
    prepare_peers,
    proof,
    run_tests,
    speeds,
    take_turns,
    timed,
    utilisation,
)

CACHE_TYPES = ("float32", "float16")


def bench_cached(shell, kind, batches, data=DATA, *options):
    return bench(shell, "--mode", "cached", "--cache-type", kind, "--batches", batches, *options, data=data)


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

    shell.names[str(group.folder)] = "GROUP"
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


@proof("a cache that is interrupted or damaged never serves a wrong byte")
def interrupted(shell):
    yield from run_tests(shell, "build/tests/test_cache")
    yield from run_tests(shell, "build/tests/test_feed", "--gtest_filter=Cache*")
    killed = shell.attempt(sys.executable, "-m", "pytest", "-q", "tests/python/test_cache_cli.py", "-k", "killed", env=LONG)
    yield judged("`penstock cache build` killed (kill -9) at 200 random moments, then built on and exported",
                 "as an uninterrupted build", killed.stdout.strip().splitlines()[-1].strip("= "), killed.returncode == 0)
