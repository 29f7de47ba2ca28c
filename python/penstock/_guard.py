"""Watches a compiled training step: how often it was compiled, when that was too late, and which argument was why.

    step = penstock.guard(jax.jit(step), warm=4)          # or a tf.function, or torch.compile's function or module
    for batch in loader:
        step(batch)                                       # warns: batch['mel']: shape (16, 344, 80) -> (16, 351, 80)
    print(step.report())

A call costs a look at the framework's own count of compilations; arguments are looked at only when it has changed.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import types
import warnings
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Callable, Deque, Generic, List, Mapping, Optional, Protocol, Tuple, TypeVar, Union, overload

from . import _recent, _signature
from ._recent import Delivered
from ._signature import Change, Signature
from .errors import Error

R = TypeVar("R")
OnRetrace = Union[str, Callable[["Retrace"], object]]

_KNOWN = 64  #: signatures that a new one is compared with: the last ones
_DETAILS = 1000  #: retraces that are kept with their causes; further ones are only counted
_WARNINGS = 10  #: a guard's; a loop that compiles at every step would drown in them
_SHOWN = 6  #: changes of one retrace in a text


class RetraceError(Error):
    """A step was compiled again after its warm-up, and its guard has on_retrace="raise"."""

    def __init__(self, retrace: Retrace) -> None:
        super().__init__(str(retrace))
        self.retrace = retrace

    def __reduce__(self) -> Any:
        return RetraceError, (self.retrace,)


@dataclass
class Compilation:
    """What a framework says of the compilations in one call."""

    count: int  #: 0: nothing was compiled after all
    reason: str = ""  #: in the framework's own words
    fallback: str = ""  #: why (a part of) the function runs without compilation from here on
    graph_breaks: List[str] = field(default_factory=list)
    dynamic: List[str] = field(default_factory=list)  #: sizes that the framework has made symbolic by itself


class Compiled(Protocol):
    """A function that a framework compiles when it is called: what the guard has to know of it."""

    kind: str  #: tf.function, jax.jit, torch.compile

    def mark(self) -> Any:
        """Is another one when a call has compiled. Taken twice in every call."""

    def entries(self) -> int | None:
        """How many programs the framework keeps for it, where it says so."""

    def tracing(self) -> bool:
        """Whether the call that comes is compiled into another function, and is none of its own."""

    def signature(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Signature:
        """All that a compilation may depend on."""

    def examine(self, before: Any) -> Compilation:
        """Behind a call whose mark before it was this one, and is another one now."""

    def causes(self, changes: list[Change], compilation: Compilation) -> list[Change]:
        """Of the changes those that were the reason."""

    def install(self, guarded: Callable[[Any], Guard[Any]]) -> Any:
        """What takes the function's place."""


@dataclass
class Retrace:
    """A compilation after the warm-up."""

    function: str
    step: int  #: which call of the guard it was, from 1 on, without those of an explicit warm-up
    seconds: float  #: of the whole call
    compilations: int
    changes: List[Change]  #: to the call that differs least, of all that were compiled for
    nearest: Optional[int]  #: that call; 0: one of an explicit warm-up
    reason: str  #: the framework's own words; TensorFlow and JAX have none
    fallback: str  #: why it runs without compilation from here on
    batch: Optional[Delivered]  #: the penstock batch that it was called with

    @property
    def cause(self) -> str:
        """In one line."""
        parts = [str(change) for change in self.changes[:_SHOWN]]
        if len(self.changes) > _SHOWN:
            parts.append(f"and {len(self.changes) - _SHOWN} changes more")
        if not parts:
            parts.append(self.reason or _NO_CHANGE)
        if self.fallback:
            parts.append(f"NOT COMPILED from here on: {self.fallback}")
        return "; ".join(parts)

    @property
    def where(self) -> str:
        """The penstock batch, or nothing."""
        if self.batch is None:
            return ""
        ids = " ".join(name for name in self.batch.ids if name)
        return (
            f"batch {self.batch.step} of epoch {self.batch.epoch}, shape {self.batch.shape}"
            + f"; utterances {ids}" * bool(ids)
        )

    def __str__(self) -> str:
        where = f"; {self.where}" if self.batch else ""
        return f"{self.function} was compiled again at step {self.step} ({self.seconds:.2f} s): {self.cause}{where}"

    def values(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "step": self.step,
            "seconds": self.seconds,
            "compilations": self.compilations,
            "cause": self.cause,
            "changes": [change._asdict() for change in self.changes],
            "nearest": self.nearest,
            "reason": self.reason,
            "fallback": self.fallback,
            "batch": self.batch._asdict() if self.batch else None,
        }


_NO_CHANGE = (
    "no argument has changed since it was compiled: a global, a closure, a setting of the framework, or its cache has"
)


class Report(dict):  # type: ignore[type-arg]
    """A guard's findings: a dict, and as str() a text.

    function, kind, steps, compilations, entries (programs that the framework keeps, or None), warm_ups and retraces
    (calls that compiled), warm_up_seconds, retrace_seconds, fallbacks, graph_breaks, dynamic, details (a dict for each
    retrace).
    """

    def __str__(self) -> str:
        lines = [
            f"{self['function']} ({self['kind']}): {_count(self['steps'], 'step')}, "
            f"{_count(self['compilations'], 'compilation')}, {self['warm_ups']} in the warm-up "
            f"({self['warm_up_seconds']:.2f} s); {_count(self['retraces'], 'retrace')}"
            + f" ({self['retrace_seconds']:.2f} s)"
            * bool(self["retraces"])
        ]
        for one in self["details"]:
            lines.append(f"  retrace at step {one['step']} ({one['seconds']:.2f} s): {one['cause']}")
            if one["batch"]:
                batch = Delivered(**one["batch"])
                lines.append(f"    batch {batch.step} of epoch {batch.epoch}, shape {batch.shape}")
                lines.append(f"    utterances {' '.join(batch.ids)}")
        if self["retraces"] > len(self["details"]):
            lines.append(f"  and {self['retraces'] - len(self['details'])} more")
        if self["steps"] and not self["compilations"]:
            lines.append("  nothing was compiled: either all was before, or it runs uncompiled")
        lines += [f"  made dynamic by itself: {one}" for one in self["dynamic"]]
        lines += [f"  graph break: {one}" for one in self["graph_breaks"]]
        return "\n".join(lines)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + "s" * (number != 1)


class _Here(threading.local):
    """Of this thread."""

    guarded = False  #: inside a guarded call: those within are its parts
    warming = 0  #: inside penstock.warm_up: whatever compiles does so in time


here = _Here()


@dataclass
class Record:
    """What a guard has seen, and what it may still see without a word."""

    name: str
    compiled: Compiled
    on_retrace: OnRetrace = "warn"
    warm_given: Optional[int] = None
    warm: int = 1  #: calls that may still compile
    warming: int = 0  #: blocks of warm_up()
    steps: int = 0  #: calls without those of explicit warm-ups
    compilations: int = 0
    warm_ups: int = 0
    warm_up_seconds: float = 0.0
    retraces: int = 0
    retrace_seconds: float = 0.0
    fallbacks: int = 0
    details: List[Retrace] = field(default_factory=list)
    graph_breaks: List[str] = field(default_factory=list)
    dynamic: List[str] = field(default_factory=list)
    known: Deque[Tuple[int, Signature]] = field(default_factory=lambda: deque(maxlen=_KNOWN))  #: calls that compiled
    anew: str = ""  #: why the function was compiled before, under another guard

    def set(self, on_retrace: OnRetrace, warm: int | None) -> None:
        self.on_retrace, self.warm_given, self.warm = on_retrace, warm, 1 if warm is None else warm
        _recent.keep()

    def add(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], before: Any, seconds: float) -> Retrace | None:
        """Takes down what the last call has compiled. The retrace, if it was one."""
        compilation = self.compiled.examine(before)
        if not compilation.count and not compilation.fallback:
            return None
        signature = self.compiled.signature(args, kwargs)
        nearest, changes = _signature.nearest(self.known, signature)
        self.known.append((self.steps, signature))
        self.compilations += compilation.count
        self.fallbacks += bool(compilation.fallback)
        self.graph_breaks += [one for one in compilation.graph_breaks if one not in self.graph_breaks]
        self.dynamic += [one for one in compilation.dynamic if one not in self.dynamic]
        if not compilation.fallback and self._is_warm_up():
            self.warm_ups += 1
            self.warm_up_seconds += seconds
            return None
        self.retraces += 1
        self.retrace_seconds += seconds
        retrace = Retrace(
            function=self.name,
            step=self.steps,
            seconds=seconds,
            compilations=compilation.count,
            changes=self.compiled.causes(changes, compilation),
            nearest=nearest,
            reason=self.anew or compilation.reason,
            fallback=compilation.fallback,
            batch=batch_in(args, kwargs, signature),
        )
        self.anew = ""
        if len(self.details) < _DETAILS:
            self.details.append(retrace)
        return retrace

    def _is_warm_up(self) -> bool:
        if self.warming or here.warming:
            self.end_of_default()
            return True
        self.warm -= 1
        return self.warm >= 0

    def end_of_default(self) -> None:
        """Where there is an explicit warm-up, it is the only one, unless a number was given too."""
        if self.warm_given is None:
            self.warm = 0

    def tell(self, retrace: Retrace) -> None:
        if callable(self.on_retrace):
            self.on_retrace(retrace)
        elif self.on_retrace == "raise":
            raise RetraceError(retrace)
        elif self.retraces <= _WARNINGS:
            last = "; further ones are only counted, see report()" * (self.retraces == _WARNINGS)
            warnings.warn(f"penstock.guard: {retrace}{last}", RuntimeWarning, stacklevel=_level_of_caller())


class Guard(Generic[R]):
    """A compiled step under watch: called as the step is, with the same results, and all the step's attributes. See
    guard()."""

    autograph_info__: Mapping[str, Any] = types.MappingProxyType({})  # TensorFlow's AutoGraph leaves us as we are

    _step: Callable[..., R]
    _record: Record
    _methods: weakref.WeakKeyDictionary[Any, Guard[R]]

    def __init__(self, step: Callable[..., R], record: Record) -> None:
        vars(self).update(_step=step, _record=record, _methods=weakref.WeakKeyDictionary())

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        record = self._record
        compiled = record.compiled
        if compiled.tracing() or here.guarded:
            return self._step(*args, **kwargs)
        if not (record.warming or here.warming):
            record.steps += 1
        before = compiled.mark()
        start = time.perf_counter()
        here.guarded = True
        try:
            result = self._step(*args, **kwargs)
        except BaseException:
            if compiled.mark() != before:
                record.add(args, kwargs, before, time.perf_counter() - start)
            raise
        finally:
            here.guarded = False
        if compiled.mark() != before:
            self._compiled(args, kwargs, before, time.perf_counter() - start)
        return result

    def _compiled(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], before: Any, seconds: float) -> None:
        retrace = self._record.add(args, kwargs, before, seconds)
        if retrace is not None:
            self._tell(retrace)

    def _tell(self, retrace: Retrace) -> None:
        self._record.tell(retrace)

    @contextlib.contextmanager
    def warm_up(self) -> Iterator[None]:
        """What compiles in this block is expected. Behind it nothing is, unless guard(warm=...) says more."""
        self._record.warming += 1
        try:
            yield
        finally:
            self._record.warming -= 1
            self._record.end_of_default()

    def report(self) -> Report:
        """What was found so far: print() shows it as text, and it is a dict (see Report)."""
        record = self._record
        return Report(
            function=record.name,
            kind=record.compiled.kind,
            steps=record.steps,
            compilations=record.compilations,
            entries=record.compiled.entries(),
            warm_ups=record.warm_ups,
            warm_up_seconds=record.warm_up_seconds,
            retraces=record.retraces,
            retrace_seconds=record.retrace_seconds,
            fallbacks=record.fallbacks,
            graph_breaks=list(record.graph_breaks),
            dynamic=list(record.dynamic),
            details=[one.values() for one in record.details],
        )

    # ---- otherwise it is the step

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_step"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._step, name, value)

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        """As a method: TensorFlow has a function of its own for every object, and so it has a guard."""
        if owner is None:
            return self
        if self._record.compiled.kind != "tf.function":
            return types.MethodType(self, owner)
        if owner not in self._methods:
            method = self._step.__get__(owner, kind)
            self._methods[owner] = guard(method, on_retrace=self._record.on_retrace, warm=self._record.warm_given)
        return self._methods[owner]

    def __reduce_ex__(self, _: Any) -> Any:
        return _again, (self._step, self._record.on_retrace, self._record.warm_given)

    def __repr__(self) -> str:
        return f"<penstock.guard of {self._step!r}>"


def _again(step: Any, on_retrace: OnRetrace, warm: int | None) -> Any:
    return guard(step, on_retrace=on_retrace, warm=warm)


@overload
def guard(step: Callable[..., R], *, on_retrace: OnRetrace = "warn", warm: int | None = None) -> Guard[R]: ...
@overload
def guard(
    step: None = None, *, on_retrace: OnRetrace = "warn", warm: int | None = None
) -> Callable[[Callable[..., R]], Guard[R]]: ...


def guard(step: Any = None, *, on_retrace: OnRetrace = "warn", warm: int | None = None) -> Any:
    """Watches a compiled step: a tf.function, a jax.jit function, or a function or module of torch.compile.

    The result is called as the step is, and has report() and warm_up() besides. (A module stays the same object, with
    the guard inside.) A call that compiles after the warm-up is a retrace: it is counted, and told with the argument
    that changed, the step, and the utterances of a penstock batch.

    step: the compiled function; without it guard(...) is a decorator, above that of the framework
    on_retrace: "warn" (a RuntimeWarning), "raise" (RetraceError, behind the call), or a function that is called with
        the Retrace
    warm: how many calls may compile before a compilation is a retrace: the number of your batches' shapes. The default
        is one, or those of an explicit warm-up, `with step.warm_up():` or penstock.warm_up(step, feed)
    """
    if not callable(on_retrace) and on_retrace not in ("warn", "raise"):
        raise Error(f'on_retrace must be "warn", "raise" or a function, but is {on_retrace!r}')
    if warm is not None and (not isinstance(warm, int) or warm < 0):
        raise Error(f"warm must be a number of calls, 0 or more, but is {warm!r}")
    if step is None:
        return lambda function: guard(function, on_retrace=on_retrace, warm=warm)
    present = guard_of(step)
    if present is not None:
        present._record.set(on_retrace, warm)
        return step
    compiled = compiled_by(step)
    if compiled is None:
        raise Error(
            f"guard() needs what tf.function, jax.jit or torch.compile returns, but got {step!r}: compile first, and "
            "guard the result, as in penstock.guard(jax.jit(step))"
        )
    record = Record(name_of(step), compiled)
    record.set(on_retrace, warm)
    return compiled.install(lambda called: Guard(called, record))


def guard_of(step: Any) -> Guard[Any] | None:
    """The guard that a step is, or that a module has inside."""
    if isinstance(step, Guard):
        return step
    inside = getattr(step, "__dict__", {})
    return next((inside[name] for name in MODULE_CALLS if isinstance(inside.get(name), Guard)), None)


#: Where modules of torch keep what was compiled.
MODULE_CALLS = ("forward", "_compiled_call_impl")


def compiled_by(step: Any) -> Compiled | None:
    """How the framework that has compiled this counts. None: none of the three has."""
    if hasattr(type(step), "experimental_get_tracing_count"):
        from . import _guard_tf

        return _guard_tf.Function(step)
    if "jax" in sys.modules and hasattr(step, "_cache_size") and hasattr(step, "lower"):
        from . import _guard_jax

        return _guard_jax.Jitted(step)
    if "torch._dynamo" in sys.modules:
        from . import _guard_torch

        return _guard_torch.Optimized(step) if _guard_torch.is_compiled(step) else None
    return None


def _level_of_caller() -> int:
    """For warnings: how far above our caller the code is that called the step; torch has frames in between."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("penstock", "torch"):
        frame, level = frame.f_back, level + 1
    return level


def name_of(step: Any) -> str:
    original = getattr(step, "_orig_mod", None)
    if original is not None:
        return type(original).__name__
    name = getattr(step, "__name__", None) or getattr(getattr(step, "__wrapped__", None), "__name__", None)
    return str(name or type(step).__name__)


def batch_in(args: tuple[Any, ...], kwargs: Mapping[str, Any], signature: Signature) -> Delivered | None:
    """The penstock batch among the arguments; else the one that was delivered last, if arrays have its sizes."""
    for value in (*args, *kwargs.values()):
        if type(value).__module__.startswith("penstock") and hasattr(value, "ids"):
            return _recent.of(value)
        if isinstance(value, Mapping) and {"mel", "tokens", "utterances", "epoch", "step"} <= value.keys():
            return _recent.at(int(value["epoch"]), int(value["step"]))
    last = _recent.last()
    shapes = [leaf["shape"] for leaf in signature.values() if "shape" in leaf]
    fits = last is not None and any({last.shape[0], size} <= set(s) for s in shapes for size in last.shape[1:])
    return last if fits else None
