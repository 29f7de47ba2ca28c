#!/usr/bin/env python3
"""What penstock.Monitor says of loops whose times are known, and what it costs a step: a JSON object.

Times are injected by sleeping until shortly before a deadline and spinning to it; those that came out are compared with those that went
in. The cost is what a step of 10 ms, which computes all the time, takes longer than its own work, with the Monitor and without it in turns."""

import itertools
import json
import os
import sys
import tempfile
import time
from statistics import mean, median

import penstock

STEP_MS = 10
CASES = [(2, 10), (10, 10), (30, 10), (5, 40), (1, 20)]  # ms of data, of computing


class Injected:
    """Takes times, and knows how long they really were: on a machine with other work a sleep is longer than it was asked to be."""

    def __init__(self):
        self.ms = {"data": [], "compute": []}

    def take(self, what, ms):
        start = time.perf_counter()
        time.sleep(max(0.0, ms / 1e3 - 1e-3))
        while time.perf_counter() < start + ms / 1e3:
            pass
        self.ms[what].append((time.perf_counter() - start) * 1e3)

    def mean(self, what):
        return mean(self.ms[what][1:])  # the first step is apart


def wrapped(mon, injected, steps, data, compute):
    def batches():
        for number in range(steps):
            injected.take("data", data)
            yield number

    for _ in mon.wrap(batches()):
        injected.take("compute", compute)


def blocks(mon, injected, steps, data, compute):
    for _ in range(steps):
        with mon.data():
            injected.take("data", data)
        with mon.compute():
            injected.take("compute", compute)


def recovered(loop, data, compute, steps=60):
    """Relative errors of the means, and of AU."""
    injected = Injected()
    with tempfile.TemporaryDirectory() as run, penstock.Monitor(os.path.join(run, "run")) as mon:
        loop(mon, injected, steps, data, compute)
        report = mon.report()
    waited, computed = injected.mean("data"), injected.mean("compute")
    errors = {
        "data": report["data_ms"]["mean"] / waited - 1,
        "compute": report["step_ms"]["mean"] / computed - 1,
        "au": report["au"] / (computed / (waited + computed)) - 1,
    }
    return {"loop": loop.__name__, "data_ms": data, "compute_ms": compute, **errors}


def work():
    """Computes for STEP_MS, through some memory: the caches are not the Monitor's. Returns how long it was, in us."""
    start = time.perf_counter_ns()
    while time.perf_counter_ns() - start < STEP_MS * 1e6:
        sum(MEMORY)
    return (time.perf_counter_ns() - start) / 1e3


MEMORY = list(range(20_000))


def beside_the_work(steps, loop):
    """us of each step that are not its work."""
    worked, ends = [], [time.perf_counter_ns()]
    for body in loop(steps):
        worked.append(body())
        ends.append(time.perf_counter_ns())
    whole = [(b - a) / 1e3 for a, b in itertools.pairwise(ends)]
    return [all_of_it - work for all_of_it, work in zip(whole, worked)][1:]


def bare(steps):
    for _ in range(steps):
        yield work


def cost(rounds=6, steps=40):
    with tempfile.TemporaryDirectory() as run, penstock.Monitor(os.path.join(run, "run")) as mon:

        def watched(steps):
            return (work for _ in mon.wrap(range(steps)))

        def in_blocks():
            with mon.data(), mon.time("augment"):
                pass
            with mon.compute():
                return work()

        def divided(steps):
            return (in_blocks for _ in range(steps))

        costs = {"bare": [], "wrapped": [], "blocks": []}
        for _ in range(rounds):
            for name, loop in (("bare", bare), ("wrapped", watched), ("blocks", divided)):
                costs[name] += beside_the_work(steps, loop)
    return {name: {"mean_us": mean(us), "median_us": median(us)} for name, us in costs.items()}


if __name__ == "__main__":
    json.dump(
        {
            "recovered": [recovered(loop, *case) for loop in (wrapped, blocks) for case in CASES],
            "step_ms": STEP_MS,
            "cost": cost(),
        },
        sys.stdout,
        indent=1,
    )
