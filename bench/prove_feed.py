"""Proofs of the feed on live audio: its speed beside its peers, its order, its memory, its mel kernel."""
import json
import sys
from statistics import median

from evidence import Line, at_least, at_most, below, judged
from proving import (
    DATA,
    bench,
    fastest,
    middle,
    prepare_data,
    prepare_peers,
    proof,
    run_tests,
    speeds,
    take_turns,
    utilisation,
)

CLIP_FRAMES = 567  # of the clip in kernels/mel_bench.cpp


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


@proof("a device that never waits")
def au(shell):
    prepare_data()
    yield from utilisation(shell, ((50, 0.99), (10, 0.99), (4, 0.95)))


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
