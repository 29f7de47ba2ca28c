"""Proofs of the trainer."""
import json
import pathlib
import shutil
import sys
import time
from statistics import median

from evidence import Line, at_least, at_most, below, judged
from proving import DATA, PEERS, PYTHON, ROOT, bench, build_cache, middle, prepare_data, prepare_environments, proof

OVERFIT = DATA.with_name(DATA.name + "-overfit")
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
