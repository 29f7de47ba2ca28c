"""A function or module of torch.compile under watch.

Dynamo counts the frames that it has compiled, keeps the reasons of the last ones, and where a graph broke. From the
limit of recompilations on it runs a frame as it is, and says so once, in its log."""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any, Callable

import numpy as np
import torch
import torch._dynamo
from torch._dynamo import utils

from . import _signature
from ._guard import MODULE_CALLS, Compilation, Guard
from ._signature import Change, Leaf, Signature
from .lending import ARRAYS


def is_compiled(step: Any) -> bool:
    if isinstance(step, torch.nn.Module):
        return hasattr(step, "_orig_mod") or getattr(step, "_compiled_call_impl", None) is not None
    return hasattr(step, "_torchdynamo_orig_callable")


class Optimized:
    """What torch.compile returns, or a module behind its compile()."""

    kind = "torch.compile"

    def __init__(self, step: Any) -> None:
        self._step = step
        self._module = step if isinstance(step, torch.nn.Module) else None
        called = getattr(step, "_orig_mod", step)
        called = called.forward if isinstance(called, torch.nn.Module) else called
        self._parameters = _signature.Parameters(getattr(called, "_torchdynamo_orig_callable", called))

    def mark(self) -> tuple[int, int, int, Any]:
        frames = utils.counters["frames"]
        metrics = utils._compilation_metrics
        return frames["total"], frames["ok"], len(utils.graph_break_reasons), metrics[-1] if metrics else None

    def entries(self) -> None:
        return None

    def tracing(self) -> bool:
        return torch.compiler.is_compiling()

    def signature(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Signature:
        found = _signature.of(self._parameters.named(args, kwargs), _leaf)
        if self._module is not None:
            found["self.training"] = {"value": self._module.training}
        found["torch.is_grad_enabled()"] = {"value": torch.is_grad_enabled()}
        found["torch.is_inference_mode_enabled()"] = {"value": torch.is_inference_mode_enabled()}
        found["torch.autocast"] = {"value": _autocast()}
        return found

    def examine(self, before: tuple[int, int, int, Any]) -> Compilation:
        _, ok, breaks = (max(now - then, 0) for now, then in zip(self.mark()[:3], before[:3]))
        frames = _frames_after(before[3])
        failed = [frame for frame in frames if frame.fail_reason]
        limits = [frame for frame in failed if _LIMIT.search(frame.fail_reason)]
        return Compilation(
            count=ok,
            reason=self._named("; ".join(dict.fromkeys(filter(None, map(_reason, frames))))),
            fallback=f"the limit of {_limit()} recompilations is reached" if limits else "",
            graph_breaks=[
                *map(_where_it_broke, utils.graph_break_reasons[len(utils.graph_break_reasons) - breaks :]),
                *(f"not compiled: {_first_line(frame.fail_reason)}" for frame in failed if frame not in limits),
            ],
            dynamic=[self._named(one) for one in _newly_dynamic(frames)],
        )

    def _named(self, text: str) -> str:
        """Dynamo calls torch's own modules, and code that it cannot read, by a function with *args."""
        return re.sub(r"\bargs\[(\d+)\]", lambda match: self._parameters.name(int(match[1])), text)

    def causes(self, changes: list[Change], compilation: Compilation) -> list[Change]:
        """Those that dynamo names: a number that it takes as a symbol may change with every call, and is not why."""

        def named(name: str) -> bool:
            return bool(re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", compilation.reason))

        around = [change for change in changes if change.leaf.startswith(_AROUND)]
        exact = [change for change in changes if named(change.leaf)]
        argument = [change for change in changes if named(re.split(r"[.\[]", change.leaf)[0])]
        found = exact or argument
        return [change for change in changes if change in found or change in around] if found else changes

    def install(self, guarded: Callable[[Any], Guard[Any]]) -> Any:
        """A module keeps its guard inside, where it calls what was compiled: it has to stay a module."""
        if self._module is None:
            return guarded(self._step)
        inside = vars(self._module)
        name = MODULE_CALLS[0 if hasattr(self._module, "_orig_mod") else 1]
        guard = guarded(inside[name])
        inside.update({name: guard, "report": guard.report, "warm_up": guard.warm_up})
        return self._module


_AROUND = ("self.training", "torch.")  #: what is no argument, and changes by purpose alone


_LIMIT = re.compile("recompile.?limit|cache.?size.?limit", re.IGNORECASE)


def _limit() -> int:
    config = torch._dynamo.config
    return int(getattr(config, "recompile_limit", 0) or getattr(config, "cache_size_limit", 0))


def _frames_after(last: Any) -> list[Any]:
    """What dynamo has noted of the frames that it has tried since; it keeps a few dozens."""
    found: list[Any] = []
    for one in reversed(utils._compilation_metrics):
        if one is last:
            break
        if getattr(one, "is_forward", None) is not False:
            found.insert(0, one)
    return found


def _first_line(text: str) -> str:
    return text.strip().split("\n")[0].strip()


def _reason(frame: Any) -> str:
    """Without the number of the graph, and the line of source behind it."""
    return re.sub(r"^\d+/\d+: |\s{2,}#.*$", "", _first_line(getattr(frame, "recompile_reason", None) or ""))


def _where_it_broke(reason: Any) -> str:
    stack = getattr(reason, "user_stack", None)
    place = f"{stack[-1].filename}:{stack[-1].lineno}: " if stack else ""
    explanation = re.search(r"Explanation: (.*)", reason.reason)
    return place + (explanation[1] if explanation else _first_line(reason.reason))


_said: set[tuple[str, str]] = set()  # sizes that were dynamic before


def _newly_dynamic(frames: list[Any]) -> list[str]:
    """Sizes and numbers that dynamo takes as symbols since one of these frames, as they have changed once."""
    try:
        from torch._dynamo import pgo

        states = pgo.get_code_state()
    except (ImportError, AttributeError):  # an older torch, which does not say
        return []
    compiled = {(frame.co_filename, frame.co_firstlineno, frame.co_name) for frame in frames}
    found: list[str] = []
    for code, state in states.items():
        if (code.filename, code.firstlineno, code.name) not in compiled:
            continue
        for source, entry in state.automatic_dynamic.items():
            what = _symbols(re.sub(r"^L\['(\w+)'\]", r"\1", source), entry)
            if what and (str(code), what) not in _said:
                _said.add((str(code), what))
                found.append(what)
    return list(dict.fromkeys(found))


def _symbols(name: str, entry: Any) -> str:
    """`x: size of dimension 0`, or nothing."""

    def is_symbol(value: Any) -> bool:
        return type(value).__name__ == "AutoDynamic"

    if isinstance(entry.size, tuple):
        dimensions = [str(i) for i, size in enumerate(entry.size) if is_symbol(size)]
        return f"{name}: size of dimension {', '.join(dimensions)}" if dimensions else ""
    return f"{name}: its value" if is_symbol(entry.size) and is_symbol(entry.scalar) else ""


def _autocast() -> str:
    on = [f"{kind} {torch.get_autocast_dtype(kind)}" for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    return ", ".join(on) or "off"


def _leaf(value: Any) -> Leaf | None:
    if isinstance(value, torch.Tensor):
        return {
            "type": type(value).__name__,
            "shape": tuple(value.shape),
            "dtype": str(value.dtype),
            "device": str(value.device),
            "stride": "contiguous" if value.is_contiguous() else value.stride(),
            "requires_grad": value.requires_grad,
        }
    if isinstance(value, torch.nn.Module):
        return {**_signature.plain(value), "training": value.training}
    if isinstance(value, (np.ndarray, np.generic)):
        return _signature.array(value)
    return None


def batch_like(first: Any, arrays: Mapping[str, Any]) -> Any:
    """A penstock.torch.Batch with these arrays, where those of the first one are."""
    from .torch import Batch

    def placed(arrays: Mapping[str, Any]) -> dict[str, Any]:
        return {name: torch.from_numpy(array).to(first.mel.device) for name, array in arrays.items()}

    always = placed({name: arrays[name] for name in ARRAYS})
    return Batch(**always, extras=placed(arrays["extras"]), shape=arrays["shape"], ids=[], epoch=-1, step=-1)


@contextlib.contextmanager
def kept(thing: Any) -> Iterator[None]:
    """Puts a module or an optimizer back as it is here, with its gradients, and torch's random numbers."""
    state = copy.deepcopy(thing.state_dict())
    weights = list(thing.parameters()) if isinstance(thing, torch.nn.Module) else []
    gradients = [None if weight.grad is None else weight.grad.clone() for weight in weights]
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            thing.load_state_dict(state)
            for weight, gradient in zip(weights, gradients):
                weight.grad = gradient
