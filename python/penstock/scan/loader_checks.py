"""How batches are collected: DataLoader's arguments, and the order of a tf.data pipeline."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .file import File, Found
from .module import Module, called_name, constant, method
from .pipelines import BATCHING, is_in_memory, is_int, is_loader, is_tf_dataset, loader_argument, pipeline


def check(file: File) -> Iterator[Found]:
    yield from _loaders(file)
    yield from _pipelines(file)


# ---- DataLoader


def _loaders(file: File) -> Iterator[Found]:
    module = file.module
    for call in module.calls:
        if not is_loader(module, call) or constant(loader_argument(call, "batch_size")) is None:
            continue
        if not file.trains_with(call):
            continue
        workers = loader_argument(call, "num_workers")
        number = is_int(workers, module)
        if workers is None or number == 0:
            dataset = loader_argument(call, "dataset")
            if dataset is not None and not is_in_memory(module, dataset) and file.has_device():
                given = "num_workers is not given, and 0 is the default" if workers is None else "num_workers=0"
                yield Found(call, "loader-no-workers", f"this DataLoader has no workers: {given}")
            continue
        pinned = loader_argument(call, "pin_memory")
        if file.has_cuda() and (pinned is None or constant(pinned) is False):
            yield Found(call, "loader-not-pinned", "batches for the GPU come from pageable memory: no pin_memory=True")
        persistent = loader_argument(call, "persistent_workers")
        if number is not None and (persistent is None or constant(persistent) is False) and file.has_epochs(call):
            yield Found(call, "loader-not-persistent", f"its {number} workers are started anew in every epoch")


# ---- tf.data


def _pipelines(file: File) -> Iterator[Found]:
    module = file.module
    if not module.uses("tensorflow", "tensorflow_datasets"):
        return
    for call in module.calls:
        if method(call) in BATCHING and not module.dotted(call.func) and not _goes_on(module, call):
            yield from _order(file, call)
        if method(call) == "apply" and call.args and _is_prefetch_to_device(module, call.args[0]):
            after = _next_stage(module, call)
            if after is not None:
                message = f"prefetch_to_device is not last: .{method(after)}() comes after it"
                yield Found(call.args[0], "prefetch-to-device-not-last", message)
    for use, expression in file.consumed():
        made = pipeline(module, expression)
        if not is_tf_dataset(module, made.root) or made.last(*BATCHING) < 0:
            continue
        ends = [name for name, _ in made.stages[made.last(*BATCHING) :]]
        to_device = any(name == "apply" and c.args and "to_device" in ast.unparse(c.args[0]) for name, c in made.stages)
        if "prefetch" not in made.names() and not to_device and "apply" not in ends:
            last = made.stages[-1][1]
            yield Found(
                last,
                "dataset-no-prefetch",
                f"this pipeline ends with .{method(last)}(), and {use} waits for each batch",
            )


def _order(file: File, batch: ast.Call) -> Iterator[Found]:
    """`batch` is the last stage that anyone in this file adds to its pipeline."""
    module = file.module
    made = pipeline(module, batch)
    prefetch, batching = made.last("prefetch"), made.last(*BATCHING)
    if 0 <= prefetch < batching and made.names()[prefetch + 1 :].count("map") == 0:
        before = made.stages[prefetch][1]
        yield Found(
            before,
            "prefetch-before-batch",
            f"prefetch comes before .{method(batch)}() in line {batch.end_lineno}, and none after it",
        )


def _goes_on(module: Module, call: ast.Call) -> bool:
    """Whether a prefetch follows, in this chain or by the name that the result gets."""
    after = _next_stage(module, call)
    while after is not None:
        if method(after) == "prefetch" or (
            method(after) == "apply" and after.args and "device" in ast.unparse(after.args[0])
        ):
            return True
        after = _next_stage(module, after)
    return _is_handed_on(module, call)


def _next_stage(module: Module, call: ast.Call) -> ast.Call | None:
    """The call of a method on what a call gives: in the same chain, or on the name that it is assigned to."""
    parent = module.parents.get(call)
    if isinstance(parent, ast.Attribute):
        outer = module.parents.get(parent)
        is_stage = (
            isinstance(outer, ast.Call) and outer.func is parent and parent.attr not in ("as_numpy_iterator", "take")
        )
        return outer if is_stage and isinstance(outer, ast.Call) else None
    if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
        for other in module.calls:
            receiver = other.func.value if isinstance(other.func, ast.Attribute) else None
            if (
                isinstance(receiver, ast.Name)
                and receiver.id == parent.targets[0].id
                and method(other) not in ("as_numpy_iterator", "take", "__iter__")
            ):
                binding = module.binding(receiver)
                if binding is not None and binding.value is call:
                    return other
    return None


def _is_handed_on(module: Module, call: ast.Call) -> bool:
    """Whether a pipeline leaves this function: the caller may add a prefetch."""
    top: ast.AST = call
    for parent in module.above(call):
        if isinstance(parent, (ast.Attribute, ast.Call)):
            top = parent
            continue
        if isinstance(parent, ast.Return):
            function = module.enclosing_function(call)
            name = function.name if function else ""
            users = [c for c in module.calls if called_name(c) == name]
            return not users or any(_next_stage(module, c) is not None for c in users)
        break
    return (
        isinstance(top, ast.Call)
        and top is not call
        and method(top) not in BATCHING
        and called_name(top) not in ("iter", "enumerate")
    )


def _is_prefetch_to_device(module: Module, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and module.dotted(node.func) == "tensorflow.data.experimental.prefetch_to_device"
