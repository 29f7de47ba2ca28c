"""Proofs of `penstock diagnose DIR`, of the oscillation finder and of what probes cost."""
import json
import re
from collections import Counter
from statistics import median

from evidence import Line, at_least, judged
from proving import DATA, LONG, Shell, prepare_data, proof

CASES = DATA.with_name(DATA.name + "-cases")


@proof("the cause of a starving device, named and removed")
def diagnose(shell: Shell):
    found = json.loads(shell("python3", "bench/diagnose/cases.py", CASES, "--cases", 100, "--healthy", 20))
    results = found["results"]
    drawn, right = Counter(), Counter()
    for r in results:
        for cause in r["causes"]:
            drawn[cause] += 1
            right[cause] += r["right"]
    yield Line("seed, cases with two causes", "", f"{found['seed']}, {sum(len(r['causes']) == 2 for r in results)} of {len(results)}")
    yield Line("cases drawn anew, as no single cause's removal brought 5 %", "", f"{found['undecidable']}")
    yield Line("runs made again, as the hypervisor gave more than 5 % of the CPUs to others", "", f"{found['disturbed']}")
    yield Line("cases with each cause, and right verdicts among them", "", ", ".join(f"{c} {right[c]}/{drawn[c]}" for c in drawn))
    yield judged("verdicts whose removal recovers 80 % of the best single gain", ">= 95 of 100", f"{found['right']} of {found['cases']}",
                 found["right"] >= 0.95 * found["cases"])
    yield judged("predicted AU of the first change within 0.10 of what is then measured", ">= 90 of 100", f"{found['near']} of {found['cases']}",
                 found["near"] >= 0.90 * found["cases"])
    yield Line("of these, cases where no change was proposed", "", f"{sum(r['predicted'] is None for r in results)}")
    yield judged("healthy pipelines called healthy", "20 of 20", f"{found['healthy']} of {found['of']}", found["healthy"] == found["of"])
    for r in results:
        if not r["right"]:
            gains = ", ".join(f"{cause} {gain:+.0%}" for cause, gain in r["gains"].items())
            yield Line(f"wrong: {' and '.join(r['causes'])}, step {r['step_ms']:.1f} ms, AU {r['au']:.2f}", "", f"named {r['verdict']}; {gains}")
        if not r["near"]:
            yield Line(f"far: {' and '.join(r['causes'])}: {r['first']}", "", f"{r['predicted']:.2f} predicted, {r['measured']:.2f} measured")


@proof("periods found in swinging series, and none in noise")
def oscillation(shell: Shell):
    out = shell("build/tests/test_monitor", "--gtest_filter=Series.*", env=LONG)
    for kind, right, of in re.findall(r"periods of (.+) within 10 %: (\d+) of (\d+)", out):
        yield judged(f"periods of {kind} within 10 %", ">= 95 %", f"{right} of {of}", int(right) >= 0.95 * int(of))
    for kind, claimed, of in re.findall(r"periods claimed in (.+): (\d+) of (\d+)", out):
        yield judged(f"periods claimed in {kind}", "<= 1 %", f"{claimed} of {of} draws", int(claimed) <= 0.01 * int(of))


@proof("what the probes cost the live feed")
def probes(shell: Shell):
    prepare_data()
    runs = json.loads(shell("build/bench/feed_probes", DATA, 25))
    speed = median(on / off for on, off in zip(runs["on"]["rows_per_second"], runs["off"]["rows_per_second"]))
    cpu = median(on / off for on, off in zip(runs["on"]["cpu_per_1000"], runs["off"]["cpu_per_1000"]))
    yield at_least("speed with probes in times of that without, median of 25 pairs", speed, 0.99, "x", digits=4)
    yield Line("CPU time of a row, likewise", "", f"{cpu:.4f}x")
    yield Line("rows a second without probes", "", f"{median(runs['off']['rows_per_second']):,.0f}")
