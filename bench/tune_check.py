#!/usr/bin/env python3
"""How far `penstock tune`'s predictions are from the truth.

    bench/tune_check.py DIR [--penstock build/penstock] [--cache-dir DIR] [--repeat 1]

Each configuration is fixed by flags, predicted by tune, and then run for real beside an emulated device by the same command. Runs
during which the hypervisor takes CPU time away show that instead, so each is repeated, and those with the least of it count. The step
times follow from this machine's own speed, so that half of the configurations starve. Builds the cache of DIR. Exit code 1 when a
difference is over 0.05, or fewer than half of the measured AUs lie between 0.2 and 0.9."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from statistics import median

from calm import CALM, calm

BAR, LOW, HIGH = 0.05, 0.2, 0.9
STEADY = 0.05  # in the CPU time of a frame

# mode, workers, depth, shapes, batch size, and the largest shape's step in times of an average batch's filling
CONFIGURATIONS = [
    ("runtime", 1, 2, 4, 16, 0.4),
    ("runtime", 1, 2, 4, 16, 1.2),
    ("runtime", 1, 4, 1, 16, 0.7),
    ("runtime", 1, 8, 4, 32, 1.0),
    ("runtime", 1, 4, 4, 8, 2.0),
    ("runtime", 2, 2, 4, 16, 0.8),
    ("runtime", 2, 2, 1, 16, 1.5),
    ("runtime", 2, 4, 4, 16, 0.6),
    ("runtime", 2, 8, 4, 8, 1.1),
    ("runtime", 2, 4, 1, 32, 0.3),
    ("runtime", 2, 8, 4, 32, 2.0),
    ("precompute", 1, 2, 4, 32, 0.8),
    ("precompute", 1, 4, 1, 32, 0.5),
    ("precompute", 1, 8, 4, 32, 1.2),
    ("precompute", 2, 4, 4, 32, 2.0),
    ("precompute", 2, 8, 1, 32, 3.0),
]


def tune(program, folder, output, step_ms, *flags):
    done = subprocess.run([program, "tune", folder, "--step-ms", f"{step_ms:.4f}", "--json", "--force", "-o", output, *map(str, flags)],
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def drift(result):
    """How much more CPU time a frame took while the configuration ran than while its cost was measured: the machine's speed has changed,
    as it does when neighbours share its cores. Whatever is the same in all runs stays."""
    ran = result["recommended"]
    then = next(m for m in result["measured"] if m["mode"] == ran["mode"] and m["workers"] == ran["workers"])
    return result["verified"]["cpu_us_per_frame"] / then["cpu_us_per_frame"] - 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--penstock", default=str(pathlib.Path(__file__).resolve().parent.parent / "build/penstock"))
    parser.add_argument("--cache-dir", help="where the index and the cache are kept, if not in DIR")
    parser.add_argument("--repeat", type=int, default=1, help="predict and measure each so often; the medians are compared")
    parser.add_argument("--json", action="store_true", help="the figures for programs")
    arguments = parser.parse_args()
    place = ["--cache-dir", arguments.cache_dir] if arguments.cache_dir else []

    with tempfile.TemporaryDirectory() as scratch:
        def run(*words):
            return tune(arguments.penstock, arguments.folder, f"{scratch}/tuned.yaml", *words, *place)

        speed = {(m["mode"], m["workers"]): m["samples_per_second"]
                 for m in run(10, "--no-verify", "--build-cache")["measured"]}
        lines = []
        for mode, workers, depth, shapes, batch, ratio in CONFIGURATIONS:
            name = "live" if mode == "runtime" else "cached"
            step_ms = ratio * batch / speed[name, min(workers, max(w for _, w in speed))] * 1e3
            flags = ("--preprocessing-mode", mode, "--num-workers", workers, "--prefetch-buffer-size", depth, "--shapes", shapes,
                     "--batch-size", batch, "--verify")

            def verified(step_ms=step_ms, flags=flags):
                result = run(step_ms, *flags)
                return {**result["verified"], "drift": drift(result)}

            runs = calm(verified, arguments.repeat, lambda r: max(r["stolen"] / CALM, abs(r["drift"]) / STEADY))
            lines.append({"mode": name, "workers": workers, "depth": depth, "shapes": shapes, "batch": batch, "step_ms": step_ms,
                          "predicted": median(r["predicted"] for r in runs), "measured": median(r["au"] for r in runs),
                          "stolen": max(r["stolen"] for r in runs), "drift": median(r["drift"] for r in runs)})
            lines[-1]["difference"] = lines[-1]["predicted"] - lines[-1]["measured"]
            if not arguments.json:
                if len(lines) == 1:
                    print("mode    workers  depth  shapes  batch  step ms  predicted  measured  difference")
                print("{mode:<7} {workers:>7} {depth:>6} {shapes:>7} {batch:>6} {step_ms:>8.2f} {predicted:>10.3f} {measured:>9.3f} "
                      "{difference:>+11.3f}".format(**lines[-1]), flush=True)

    largest = max(abs(line["difference"]) for line in lines)
    between = sum(LOW <= line["measured"] <= HIGH for line in lines)
    met = largest <= BAR and 2 * between >= len(lines)
    if arguments.json:
        print(json.dumps({"configurations": lines, "largest_difference": largest, "between": between, "met": met}, indent=2))
    else:
        print(f"largest difference {largest:.3f} (bar {BAR}); {between} of {len(lines)} measured between {LOW} and {HIGH}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
