"""What `./run demo` shows, and the page that it ends with. Every call uses again what the last one left in data/.

demo.py feed     what needs no trainer: a dataset, the feed from audio and from its cache, a device starved and fed
demo.py voice    a voice in training
demo.py page     what was measured, on one screen
"""

import contextlib
import json
import os
import pathlib
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import textwrap
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PENSTOCK = "build/penstock"
DATA, CONFIG = "data/demo", "data/demo.yaml"
PHASES, PICTURE = "data/starved-then-fed", "data/demo.html"  # the run's name is the picture's title
VOICE, WAV, STEPS, SENTENCE = "data/demo-run", "data/demo.wav", 40, "Good morning."
FIGURES = pathlib.Path("data/demo-figures.json")  # from one call to the next

BATCH = 16
STARVED = ("--num-workers", 1, "--preprocessing-mode", "runtime")  # computed again each time, though a cache is there
# As bench/prove.py measures the peers: one shape, a little larger than theirs; and with the two workers that they have.
AS_PEERS = ("--split", "all", "--batch-size", 16, "--pad-to-fixed-length", "--max-mel-frames", 880)
AS_PEERS += ("--max-text-length", 256, "--num-workers", 2)
PEER, PEER_SECONDS = "bench/peers/live/torch_loader.py", 60
PEER_NEEDS = ("torch", "librosa", "soundfile")
GET_TORCH = "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt"
WHAT_TO_DO = f"docs/troubleshooting.md goes by message; `rm -r {DATA} {VOICE}` lets the demo start from nothing"

WIDTH, BAR = 80, 30  # columns of the page, and of a bar that stands for 1
STYLES = {"head": "1", "good": "32", "bad": "31", "dim": "2"}


class Failed(Exception):
    """A command that ended the demo."""

    def __init__(self, words, code, why=None):
        super().__init__(f"{shlex.join(words)}: {why or f'exit code {code}'}")
        self.code = code


@contextlib.contextmanager
def part(name):
    """The same lines as of a part of `run`."""
    say(f"── {name}")
    start = time.monotonic()
    yield
    say(f"── {name}: {time.monotonic() - start:.0f} s")


def say(text):
    if len(text) > WIDTH:
        text = textwrap.fill(text, WIDTH, subsequent_indent="    ")
    print(text, flush=True)  # before what the next command says on stderr


def run(*words, fine=(0,), each=None):
    """A command's output; `each` gets its lines as they come. What it says on stderr is seen at once."""
    words = [str(word) for word in words]
    try:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, encoding="utf-8", errors="replace")
    except OSError as error:
        raise Failed(words, 127, error.strerror) from None
    output = []
    with process:
        try:
            for line in process.stdout:
                output.append(line)
                if each:
                    each(line.rstrip("\n"))
            process.wait()
        except KeyboardInterrupt:
            process.wait()  # Ctrl-C was for it too: it leaves nothing half-written
            raise
    if process.returncode not in fine:
        raise Failed(words, process.returncode if process.returncode > 0 else 128 - process.returncode)
    return "".join(output)


def measured(command, *words, **options):
    return json.loads(run(PENSTOCK, command, *words, "--json", **options))


def bench(*options):
    return measured("bench", DATA, "--no-limits", *options)


def kept():
    return json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}


def keep(figures):
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def machine():
    """Its processor's name, and how many CPUs there are for us."""
    name = platform.machine()
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    return {"name": name, "cpus": len(os.sched_getaffinity(0))}


def count(number, thing):
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


# ── feed


def show_info(info):
    seconds = info["seconds"]
    say(
        f"{info['clips']} clips of {seconds['min']:.1f} to {seconds['max']:.1f} s, {info['hours']:.2f} hours, "
        f"{count(info['speakers'], 'speaker')}"
    )
    for what in ("unreadable", "rejected"):
        if info[what]:
            say(f"{what}: {len(info[what])} (`{PENSTOCK} info {DATA}` names them)")
    say("shapes   padding   tokens x frames")
    for choice in info["shapes"]:
        sizes = " ".join(f"{shape['tokens']}x{shape['frames']}" for shape in choice["shapes"])
        say(f"{choice['count']:>6}  {choice['padding'] * 100:>6.1f} %   {sizes}")


def show_speed(result):
    cpu_seconds, workers = result["cpu_seconds_per_1000"], count(result["workers"], "worker")
    say(f"{result['samples_per_second']:,.0f} samples/s, {cpu_seconds:.3f} CPU s per 1,000; {workers}")
    stages = sorted(result["stages"], key=lambda stage: -stage["share"])[:3]
    shares = ", ".join(f"{stage['share'] * 100:.0f} % {stage['name']}" for stage in stages if stage["share"] >= 0.01)
    say(f"a batch every {result['batch_ms']['mean']:.2f} ms; of the work, {shares}")


def starve_and_feed(live):
    """One run of two measurements, and the picture of it. The step is a third of what a batch from audio costs a
    worker: one cannot keep up on any machine, and the cache, ten times as fast and more, can."""
    one_worker_ms = live["cpu_seconds_per_1000"] * BATCH
    step_ms = max(0.5, round(one_worker_ms / 3 * 2) / 2)
    shutil.rmtree(PHASES, ignore_errors=True)
    into = ("--step-ms", step_ms, "--run", PHASES)
    starved = bench(*into, *STARVED, "--batches", max(100, round(2500 / one_worker_ms)))
    say(f"steps of {step_ms:g} ms, one worker, no cache:  AU {starved['au']:.2f}")
    fed = bench(*into, "--mode", "cached", "--batches", round(2000 / step_ms))
    say(f"steps of {step_ms:g} ms, from the cache:        AU {fed['au']:.2f}")
    measured("report", PHASES, "-o", PICTURE)
    say(f"drawn in {PICTURE}")
    return {"step_ms": step_ms, "starved": starved["au"], "fed": fed["au"]}


def tune(step_ms):
    result = measured("tune", DATA, "--step-ms", step_ms, "--seconds", 0.2, "--output", CONFIG, "--force")
    chosen, real = result["recommended"], result["verified"]
    au = f"AU {real['au']:.2f}, run for real" if real else f"AU {chosen['au']:.2f}, predicted"
    workers, shapes = count(chosen["workers"], "worker"), count(chosen["shapes"], "shape")
    say(f"{workers} ({chosen['mode']}), a depth of {chosen['depth']}, {shapes}: {au}")
    say(f"written to {CONFIG}")


def show_diagnosis(found):
    say(f"verdict: {found['why']}" if not found["healthy"] else f"healthy: AU {found['au']:.2f}")
    for remedy in found["remedies"][:1]:
        how = "tried" if remedy["tried"] else "predicted"
        say(f"change:  {remedy['what']}: AU {found['au']:.2f} -> {remedy['au']:.2f} ({how})")
        for key, value in remedy["settings"].items():
            say(f"           {key}: {value}")


def has_peer(python):
    """Whether that Python has what the peer imports; asked without the seconds that importing takes."""
    ask = f"import sys, importlib.util as u; sys.exit(not all(map(u.find_spec, {PEER_NEEDS})))"
    try:
        return subprocess.run([python, "-c", ask], capture_output=True).returncode == 0
    except OSError:
        return False


def dataloader(pythons=(".venv/bin/python", "python3")):
    """What a PyTorch DataLoader does with the same clips, or {"left_out": why}."""
    python = next(filter(has_peer, pythons), None)
    if not python:
        return {"left_out": f"needs {', '.join(PEER_NEEDS)}"}
    try:
        done = subprocess.run([python, PEER, DATA], capture_output=True, text=True, timeout=PEER_SECONDS)
    except subprocess.TimeoutExpired:
        return {"left_out": f"not done in {PEER_SECONDS} s"}
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    return {"left_out": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]}


def beside_pytorch():
    """Both in one minute, ours before and after it, so that what else the machine does hits both."""
    before, theirs = bench(*AS_PEERS), dataloader()
    if "left_out" in theirs:
        for line in left_out(theirs):
            say(line)
        return {"theirs": theirs}
    after = bench(*AS_PEERS)
    keys = ("samples_per_second", "cpu_seconds_per_1000")
    ours = {key: statistics.mean((before[key], after[key])) for key in keys}
    for name, result in (("Penstock", ours), ("PyTorch DataLoader", theirs)):
        say(f"{name:<18}  {result['samples_per_second']:>6,.0f} samples/s from audio with two workers")
    return {"theirs": {key: theirs[key] for key in keys}, "ours": ours}


def left_out(theirs):
    return f"PyTorch DataLoader left out: {theirs['left_out']}", f"with it: {GET_TORCH}"


def feed():
    FIGURES.unlink(missing_ok=True)
    figures = {"machine": machine(), "load": [os.getloadavg()[0]]}
    if not pathlib.Path(DATA, "metadata.csv").exists():
        with part("a spoken dataset"):
            run(PENSTOCK, "synth", DATA, "--clips", 200, "--speakers", 4, "--seed", 1)
    with part("info"):
        info = measured("info", DATA)
        show_info(info)
    with part("the feed at full speed, from audio"):
        live = bench("--batch-size", BATCH)
        show_speed(live)
    with part("the cache"):
        built = measured("cache", "build", DATA)
        say(f"{built['built']} records built, {built['kept']} were there")
    with part("the feed at full speed, from the cache"):
        cached = bench("--batch-size", BATCH, "--mode", "cached", "--batches", 2000)
        show_speed(cached)
    with part("a device that starves, and is fed"):
        device = starve_and_feed(live)
    with part("what keeps that device busy"):
        tune(device["step_ms"])
    with part("why it starves beside one worker and no cache, and what to change"):
        found_a_problem = 1
        found = measured("diagnose", DATA, "--step-ms", device["step_ms"], *STARVED, fine=(0, found_a_problem))
        show_diagnosis(found)
    with part("the same clips in a PyTorch DataLoader"):
        peer = beside_pytorch()
    figures["load"].append(os.getloadavg()[0])
    keys = ("samples_per_second", "cpu_seconds_per_1000")
    figures |= {
        "clips": info["clips"],
        "hours": info["hours"],
        "live": {key: live[key] for key in keys},
        "cached": {key: cached[key] for key in keys},
        "device": device,
        "peer": peer,
    }
    keep(figures)


# ── voice


def shortened(line):
    """What `penstock train` says, in fewer columns; None for what does not matter here."""
    words = line.split()
    if len(words) == 11 and words[0].isdigit():  # step epoch loss lr norm step_ms data_ms AU frames/s padding retraces
        return f"step {words[0]:>4}   loss {words[2]}   {words[5]:>7} ms a step   AU {words[7]}"
    return line if line.startswith(("validation", "resumed", "nothing left", "retrace", "step ")) else None


def voice():
    def show(line):
        if text := shortened(line):
            say(text)

    with part("a voice in training"):
        every = ("--batch-size", 8, "--log-every", 10, "--val-every", 20)
        run(PENSTOCK, "train", DATA, "--run", VOICE, "--steps", STEPS, *every, each=show)
        say(f"drawn in {measured('report', VOICE)['report']}")
    with part("what it says"):
        said = measured("say", VOICE, SENTENCE, "--most-seconds", 3, "--output", WAV)
        say(f"{WAV}: {said['seconds']:.1f} s")
    keep(kept() | {"voice": {"seconds": said["seconds"], "steps": STEPS}})


# ── page


def row(*pieces, colour):
    """One line of texts and (style, text), no wider than the page."""
    left, out = WIDTH, ""
    for piece in pieces:
        style, text = piece if isinstance(piece, tuple) else (None, piece)
        if len(text) > left:
            text = text[: max(0, left - 1)] + "…" if left else ""
        left -= len(text)
        out += f"\x1b[{STYLES[style]}m{text}\x1b[0m" if style and colour and text.strip() else text
    return out.rstrip()


def bar(share):
    eighths = round(min(max(share, 0), 1) * BAR * 8)
    return ("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8]).rstrip()


def page_rows(figures, opened=False):
    """The page as rows of texts and (style, text)."""
    at, load = figures["machine"], figures["load"]
    yield (("head", "Penstock, measured here"),)
    yield (f"{at['name'][:60]}, {count(at['cpus'], 'CPU')}",)
    yield (f"load average {load[0]:.1f} when it began, {load[-1]:.1f} when it ended",)
    yield ()

    def speed(name, result, style=None, more=""):
        numbers = f"{result['samples_per_second']:>11,.0f}{result['cpu_seconds_per_1000']:>18.3f}"
        return f"  {name:<32}", (style, numbers) if style else numbers, more

    clips = f"{count(figures['clips'], 'clip')}, {figures['hours']:.2f} hours"
    yield ("head", f"{clips:<34}"), ("dim", f"{'samples/s':>11}{'CPU s per 1,000':>18}")
    yield speed("from audio", figures["live"], "good")
    yield speed("from the cache", figures["cached"], "good")
    theirs = figures["peer"]["theirs"]
    if "left_out" in theirs:
        for line in left_out(theirs):
            yield (f"  {line}",)
    else:
        ours = figures["peer"]["ours"]
        times = ours["samples_per_second"] / theirs["samples_per_second"]
        yield (("dim", "all padded to one shape, two workers each:"),)
        yield speed("Penstock, from audio", ours, "good", f"   {times:,.1f} times")
        yield speed("PyTorch DataLoader, SciPy mel", theirs)
    yield ()

    device = figures["device"]
    steps = f"a device with steps of {device['step_ms']:g} ms"
    yield ("head", f"{steps:<34}"), ("dim", "AU: the share in which it computes")
    for name, au, style in (
        ("starved: one worker, no cache", device["starved"], "bad"),
        ("fed: from the cache", device["fed"], "good"),
    ):
        yield f"  {name:<32}", (style, f"{au:.2f}  {bar(au)}")
    yield ()

    yield f"  picture   {PICTURE:<22}", ("dim", "that device starved, then fed" + (" (opened)" if opened else ""))
    if figures.get("voice"):
        said = f'"{SENTENCE}" after {figures["voice"]["steps"]} steps: not speech yet'
        yield f"  voice     {WAV:<22}", ("dim", said)
    yield ()

    yield (("head", "next, with your own data"),)
    yield f"  {PENSTOCK} info YOUR/DATA", ("dim", "                 hours, problems, shapes")
    yield f"  {PENSTOCK} bench YOUR/DATA --step-ms 50", ("dim", "   how busy a device would be")
    yield f"  {PENSTOCK} diagnose -- python train.py", ("dim", "    why your own loop waits")


def in_colour(stream, environment):
    terminal = environment.get("TERM", "dumb") != "dumb"
    return stream.isatty() and terminal and "NO_COLOR" not in environment


def opens(path):
    """Shows a page where somebody sits in front of a desktop."""
    desktop = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if not (sys.stdout.isatty() and desktop and shutil.which("xdg-open")):
        return False
    quiet = subprocess.DEVNULL
    subprocess.Popen(["xdg-open", path], stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    return True


def page():
    figures = kept()
    if "device" not in figures:
        print("nothing was measured yet: ./run demo does", file=sys.stderr)
        return 2
    colour = in_colour(sys.stdout, os.environ)
    print()
    for pieces in page_rows(figures, opens(PICTURE)):
        print(row(*pieces, colour=colour))
    return 0


def main(arguments):
    stages = {"feed": feed, "voice": voice, "page": page}
    if len(arguments) != 1 or arguments[0] not in stages:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    os.chdir(ROOT)
    sys.stdout.reconfigure(errors="replace")  # bars in a locale without them
    try:
        return stages[arguments[0]]() or 0
    except Failed as failure:
        print(f"{failure}\n{WHAT_TO_DO}", file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
