"""`penstock retrace --python FILE:FUNCTION`: some steps of a training loop as it is, and why each was compiled."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.util
import inspect
import json
import math
import pathlib
import runpy
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from typing import Any, Callable, Dict, List, Optional

from . import _signature
from ._guard import Guard, Record, Report, Retrace, batch_in, compiled_by, guard_of, name_of
from ._interception import intercepted
from ._warming import wait
from .errors import Error

FOUND_A_PROBLEM, MISUSE, INTERRUPTED = 1, 2, 130

_EPILOG = """\
FUNCTION is called without arguments, with FILE as a module; without FUNCTION, FILE runs as a program. All that it
compiles with tf.function, jax.jit or torch.compile is watched, and it is stopped behind the Nth call of one such
function. What follows -- is the program's own command line. Exit code 1 on a retrace.

Examples:
  penstock retrace --python train.py:main
  penstock retrace --python train.py --steps 30 -- --data data/en --batch-size 16
  penstock retrace --python train.py:main --warm 4        four shapes are meant
  penstock retrace --python train.py:main --step train_step --json
"""


class _Enough(BaseException):
    """Ends the loop; no except Exception stops it."""


@dataclasses.dataclass
class Step:
    """A call of a watched function."""

    function: str
    number: int
    shape: str
    loss: Optional[float]
    ms: float
    compiled: bool
    retrace: Optional[Retrace]

    def line(self, first: str) -> str:
        """As in `penstock retrace` of the trainer."""
        loss = "         -" if self.loss is None else f"{self.loss:10.5f}"
        note = "  RETRACE" if self.retrace else "  compiled" if self.compiled else ""
        name = f"  {self.function}" if self.function != first else ""
        return f"step {self.number:>4}  {self.shape:<18} loss {loss}  {self.ms:9.1f} ms{note}{name}"

    def values(self) -> dict[str, Any]:
        shown = {"function": self.function, "step": self.number, "shape": self.shape, "loss": self.loss}
        shown.update({"ms": self.ms, "compiled": self.compiled})
        return {**shown, "retrace": self.retrace.values()} if self.retrace else shown


class Loop:
    """Watches what a loop compiles and calls."""

    def __init__(self, steps: int, warm: int | None, only: str, show: Callable[[Step], object]) -> None:
        self.most, self.warm, self.only, self.show = steps, warm, only, show
        self.steps: List[Step] = []
        self.records: List[Record] = []
        self._last: Dict[Any, Record] = {}  # by what was compiled

    def watch(self, made: Any, function: Any, place: str) -> Any:
        """What tf.function, jax.jit or torch.compile has made of a function takes its guard along."""
        compiled = compiled_by(made)
        if compiled is None or guard_of(made) is not None:
            return made
        record = Record(name_of(made), compiled)
        record.set("warn", self.warm)
        code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
        before = self._last.get(code)
        if before is not None and before.steps > 0:
            anew = f"{compiled.kind} was called again, at {place}: compile once, before the loop"
            record = dataclasses.replace(before, compiled=compiled, anew=anew, warm=0)
            self.records.remove(before)
        if code is not None:
            self._last[code] = record
        self.records.append(record)
        return compiled.install(lambda called: _Watched(called, record, self))

    def add(self, record: Record, args: Any, kwargs: Any, result: Any, ms: float, compiled: bool) -> None:
        retrace = record.details[-1] if record.details and record.details[-1].step == record.steps else None
        shape = _shape(record, args, kwargs, result)
        step = Step(record.name, record.steps, shape, _loss(result), ms, compiled, retrace)
        self.steps.append(step)
        self.show(step)
        if record.steps >= self.most and self.only in ("", record.name):
            raise _Enough


class _Watched(Guard[Any]):
    """A guard that takes down every step, and leaves it to the page to tell."""

    _loop: Loop

    def __init__(self, step: Callable[..., Any], record: Record, loop: Loop) -> None:
        super().__init__(step, record)
        vars(self)["_loop"] = loop

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        record = self._record
        steps, compilations = record.steps, record.compilations
        start = time.perf_counter()
        result = super().__call__(*args, **kwargs)
        if record.steps != steps:  # not a part of another step, nor of a warm-up
            wait(result)
            ms = (time.perf_counter() - start) * 1e3
            self._loop.add(record, args, kwargs, result, ms, record.compilations != compilations)
        return result

    def _tell(self, retrace: Retrace) -> None:
        pass

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if owner is None or self._record.compiled.kind != "tf.function":
            return super().__get__(owner, kind)
        if owner not in self._methods:
            method = self._step.__get__(owner, kind)
            self._methods[owner] = self._loop.watch(method, None, "")
        return self._methods[owner]


def _shape(record: Record, args: Any, kwargs: Any, result: Any) -> str:
    """Of the penstock batch, or of the largest array among the arguments that is no part of the model: what a step
    takes and returns is."""
    signature = record.compiled.signature(args, kwargs)
    batch = batch_in(args, kwargs, signature)
    if batch is not None:
        return str(batch.shape)
    state = {_shapes(record, one) for one in (result if isinstance(result, (list, tuple)) else [result])}
    given = [_shapes(record, value) for value in (*args, *kwargs.values())]
    data = [shape for shapes in given if shapes not in state for shape in shapes]
    return str(max(data or [shape for shapes in given for shape in shapes], key=math.prod, default="-"))


def _shapes(record: Record, value: Any) -> tuple[tuple[int, ...], ...]:
    """Of all arrays in a value."""
    shapes = [leaf.get("shape") for leaf in record.compiled.signature((value,), {}).values()]
    return tuple(shape for shape in shapes if isinstance(shape, tuple) and None not in shape)


def _loss(result: Any) -> float | None:
    """A result called loss, or the first number among the results."""
    numbers: Dict[str, float] = {}

    def walk(place: str, value: Any) -> None:
        inside = _signature.children(value)
        for step, child in inside or ():
            walk(place + step, child)
        is_real = isinstance(value, float) or (
            getattr(value, "shape", None) == () and "float" in str(getattr(value, "dtype", ""))
        )
        if inside is None and is_real:
            with contextlib.suppress(TypeError, ValueError, RuntimeError):  # a key of random numbers, a traced value
                numbers[place] = float(value.detach() if hasattr(value, "detach") else value)

    walk("", result)
    return next((value for place, value in numbers.items() if "loss" in place), next(iter(numbers.values()), None))


# ---- the page


def findings(loop: Loop) -> dict[str, Any]:
    """For programs; the names are those of the trainer's own `penstock retrace --json`."""
    reports = [_report(record) for record in loop.records if record.steps]
    quiet = _quiet(loop)
    mean = sum(quiet) / len(quiet) if quiet else 0.0
    return {
        "functions": reports,
        "steps": [step.values() for step in loop.steps],
        "warm_up_s": sum(report["warm_up_seconds"] for report in reports),
        "mean_ms": mean,
        "std_ms": math.sqrt(sum((ms - mean) ** 2 for ms in quiet) / len(quiet)) if quiet else 0.0,
        "retraces": sum(report["retraces"] for report in reports),
    }


def _report(record: Record) -> Report:
    return Guard(record.compiled.mark, record).report()


def _quiet(loop: Loop) -> list[float]:
    """Times of the steps that did not compile; of all, if each did."""
    return [step.ms for step in loop.steps if not step.compiled] or [step.ms for step in loop.steps]


def page(loop: Loop, found: dict[str, Any]) -> str:
    shapes = Counter(step.shape for step in loop.steps)
    lines = [f"Shapes of {len(loop.steps)} batches:", *(f"  {shape:<18} {n}x" for shape, n in shapes.items())]
    some = " without those that compiled" if not all(step.compiled for step in loop.steps) else ""
    lines.append(f"Step time: {found['mean_ms']:.1f} ± {found['std_ms']:.1f} ms{some}")
    for report in found["functions"]:
        lines.append(
            f"{report['function']} ({report['kind']}): compiled {report['compilations']}x, "
            f"{report['warm_ups']} in the warm-up ({report['warm_up_seconds']:.2f} s)"
        )
        lines += [f"  made dynamic by itself: {one}" for one in report["dynamic"]]
        lines += [f"  graph break: {one}" for one in report["graph_breaks"]]
    retraced = [step for step in loop.steps if step.retrace]
    for step in retraced:
        assert step.retrace is not None
        where = f"; {step.retrace.where}" if step.retrace.where else ""
        lines.append(f"  step {step.number}: {step.retrace.cause}{where}")
    steps = f"{len(loop.steps)} step{'s' * (len(loop.steps) != 1)}"
    if not found["retraces"]:
        return "\n".join([*lines, f"OK: no retraces in {steps}"])
    retraces = f"{found['retraces']} retrace{'s' * (found['retraces'] != 1)}"
    advice = _advice([step.retrace for step in retraced if step.retrace])
    return "\n".join([*lines, f"PROBLEM: {retraces} in {steps}; {advice}"])


_ADVICE = {
    "shape": "use a few fixed shapes (penstock.Feed(..., shapes=4)), and tell how many are meant (--warm 4)",
    "value": "pass numbers that change as arrays, and leave constants alone",
    "dtype": "give every array one dtype before the step",
    "weak type": "make it an array of a dtype (jnp.float32(x)), also where it is made first",
    "device": "put everything on its device in the same way, before the first step too",
    "presence": "pass the same arguments and keys every time",
}


def _advice(retraces: list[Retrace]) -> str:
    """For what was the cause most often."""
    if any(retrace.fallback for retrace in retraces):
        return "what is not compiled is slow at every step: find the causes above before you raise the limit"
    causes = Counter(retrace.changes[0].what if retrace.changes else "" for retrace in retraces)
    return _ADVICE.get(causes.most_common(1)[0][0], "compile and warm up once, before the loop")


# ---- the command


def _arguments(words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    own, program = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    parser = argparse.ArgumentParser(
        prog="penstock retrace",
        description="Some steps of your own Python training loop: what is compiled when, and why again?",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--python", required=True, metavar="FILE[:FUNCTION]", help="the loop")
    parser.add_argument("--steps", type=_whole(1), default=10, metavar="N", help="where to stop (default: 10)")
    parser.add_argument(
        "--warm", type=_whole(0), metavar="K", help="calls that may compile: the number of your shapes (default: 1)"
    )
    parser.add_argument("--step", default="", metavar="NAME", help="the compiled function whose calls are the steps")
    parser.add_argument("--json", action="store_true", help="the findings for programs")
    return parser.parse_args(own), program


def _whole(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"must be a whole number from {least} on, but is {text!r}")
        return int(text)

    return parse


def _run(target: str, program: list[str]) -> None:
    """Calls the loop."""
    file, _, name = target.partition(":")
    path = pathlib.Path(file)
    if not path.is_file():
        raise Error(f"--python {target}: there is no file {file}; expected is FILE or FILE:FUNCTION")
    sys.argv = [file, *program]
    sys.path.insert(0, str(path.resolve().parent))
    if not name:
        runpy.run_path(file, run_name="__main__")
        return
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise Error(f"--python {target}: {file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    function: Any = module
    for part in name.split("."):
        function = getattr(function, part, None)
    if not callable(function):
        raise Error(f"--python {target}: {file} has no function {name}")
    with contextlib.suppress(TypeError, ValueError):
        missing = _required(function)
        if missing:
            raise Error(f"--python {target}: {name} must be callable without arguments, but needs {', '.join(missing)}")
    result = function()
    if isinstance(result, Iterator):
        for _ in result:
            pass


def _required(function: Any) -> list[str]:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [one.name for one in parameters if one.default is one.empty and one.kind not in kinds]


def main(words: list[str]) -> int:
    arguments, program = _arguments(words)
    out = sys.stdout
    first: List[str] = []

    def show(step: Step) -> None:
        first.append(step.function)
        if not arguments.json:
            print(step.line(first[0]), file=out, flush=True)

    loop = Loop(arguments.steps, arguments.warm, arguments.step, show)
    code = 0
    try:
        with intercepted(loop.watch), contextlib.redirect_stdout(sys.stderr if arguments.json else out):
            _run(arguments.python, program)
    except _Enough:
        pass
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Error as error:
        print(f"penstock: {error}", file=sys.stderr)
        return MISUSE
    except SystemExit as end:
        code = FOUND_A_PROBLEM if end.code else 0
    except Exception:
        traceback.print_exc()
        code = FOUND_A_PROBLEM
    if not loop.steps:
        print(f"penstock: {arguments.python} has called nothing that tf.function, jax.jit or torch.compile "
              "has compiled", file=sys.stderr)  # fmt: skip
        return code or MISUSE
    found = findings(loop)
    print(json.dumps(found, indent=2) if arguments.json else page(loop, found), file=out, flush=True)
    return code or (FOUND_A_PROBLEM if found["retraces"] else 0)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main(sys.argv[1:]))
