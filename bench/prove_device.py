"""Proofs of the device stage: hidden copies, the autotuner, what tune predicts, and threads that must not wait for us."""
import json
import sys
from statistics import median

from calm import CALM
from evidence import Line, at_least, at_most, judged
from proving import DATA, FIXED_SHAPE, bench, prepare_data, proof, run_tests


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
    """Each weather in the pass during which the hypervisor took the least of the CPUs; there are more when it took much."""
    prepare_data()
    passes = []
    while len(passes) < 3 and (not passes or any(min(w["stolen"] for w in same) > CALM for same in zip(*passes))):
        passes.append(json.loads(shell("build/bench/feed_weather", DATA)))
    for same in zip(*passes):
        w = min(same, key=lambda w: w["stolen"])
        name = f"step {w['step_ms']:g} ms" + (f", reads {w['read_delay_us'] / 1000:g} ms slower" if w["read_delay_us"] else "")
        best = max(f["au"] for f in w["fixed"])
        enough = min(f["workers"] for f in w["fixed"] if f["au"] >= 0.99 * best)
        yield at_least(f"{name}: AU from the 50th batch on, in times of the best fixed setting's", w["au"] / best, 0.99, digits=4)
        yield judged(f"{name}: workers (depth {w['depth']})", f"<= {enough + 1}, one more than the best fixed", str(w["workers"]),
                     w["workers"] <= enough + 1)
        yield at_most(f"{name}: changes in the next 1,000 batches", w["changes"], 2, digits=0)
        yield Line(f"{name}: of the CPU time taken by the hypervisor", "", f"{w['stolen']:.1%}, of {len(passes)} passes")


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


@proof("the CUDA code over thousands of random schedules of the stand-in, and with each of its waits left out")
def schedules(shell):
    yield from run_tests(shell, "build/tests/test_device")
