"""What a compiled function should not do, and what it should not be given."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .compiled import Compiled
from .file import File, Found
from .module import FUNCTIONS, Module, called_name, constant, keyword, method, names_in
from .pipelines import is_int, is_loader, loader_argument, pipeline
from .steps import StepBody


def check(file: File) -> Iterator[Found]:
    yield from _under_jit(file)
    for step in file.steps:
        if isinstance(step.node, FUNCTIONS):
            continue
        yield from _numbers(step)
        if step.trains:
            yield from _remainders(file.module, step)


def _under_jit(file: File) -> Iterator[Found]:
    module = file.module
    for call in module.calls:
        name = module.dotted(call.func)
        is_print = isinstance(call.func, ast.Name) and call.func.id == "print" and module.binding(call.func) is None
        if not is_print and name not in ("tensorflow.print", "jax.debug.print", "tensorflow.shape"):
            continue
        compiled = file.compiled.enclosing(call)
        if compiled is None or compiled.body is None:
            continue
        if name == "tensorflow.shape":
            if compiled.static_shapes() and _is_parameter(compiled, call):
                yield Found(
                    call, "tf-shape-in-static-step", "tf.shape of an argument whose shape the input_signature fixes"
                )
        elif not module.is_guarded(call, compiled.body):
            yield from _print(module, call, name, compiled)


def _is_parameter(compiled: Compiled, call: ast.Call) -> bool:
    first = call.args[0] if call.args else None
    return (
        compiled.body is not None
        and isinstance(first, ast.Name)
        and first.id in {a.arg for a in compiled.body.args.args}
    )


def _print(module: Module, call: ast.Call, name: str, compiled: Compiled) -> Iterator[Found]:
    if name:
        shown = "tf.print" if name.startswith("tensorflow") else name
        yield Found(call, "print-under-jit", f"{shown} calls the host in each run of the compiled function")
    elif compiled.framework == "torch":
        yield Found(
            call, "print-under-jit", "print breaks the graph of torch.compile: two graphs, and Python between them"
        )
    elif _shows_values(module, call, compiled):
        kind = "tf.function" if compiled.framework == "tf" else "jit"
        instead = (
            "tf.print, while you look for a fault"
            if compiled.framework == "tf"
            else "jax.debug.print, while you look for a fault"
        )
        yield Found(
            call,
            "print-under-jit",
            f"print under {kind} runs only while it is traced, and shows no values",
            level="hint",
            instead=instead,
        )


def _shows_values(module: Module, call: ast.Call, compiled: Compiled) -> bool:
    """Whether a print is meant to show values. Shapes are known while tracing, and traces can be counted so."""
    if compiled.body is None or any(word in ast.unparse(call).lower() for word in ("trac", "compil")):
        return False
    traced = {a.arg for a in compiled.body.args.args} - {"self"}
    body = compiled.body.body if isinstance(compiled.body.body, list) else []
    for node in module.inside(body):
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Call, ast.BinOp)):
            traced |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    for name in (n for argument in call.args for n in ast.walk(argument) if isinstance(n, ast.Name)):
        if name.id in traced and not isinstance(module.parents.get(name), ast.Attribute):
            return True
    return False


def _numbers(step: StepBody) -> Iterator[Found]:
    for call, compiled in step.compiled:
        if compiled.framework == "tf" and "input_signature" in compiled.options:
            continue
        given = [*call.args, *(k.value for k in call.keywords)]
        if compiled.framework == "jax":
            given = compiled.static_arguments(call)
        for argument in given:
            counter = _counter(argument, step.counters)
            if counter is None:
                continue
            if compiled.framework == "torch":
                if compiled.is_true("dynamic"):
                    continue
                fixed = constant(compiled.options.get("dynamic")) is False
                message = f"{counter} is a Python number: " + (
                    "with dynamic=False each value is compiled"
                    if fixed
                    else "its first value is compiled, and at the second all is compiled again"
                )
                yield Found(
                    argument,
                    "python-number-argument",
                    message,
                    level=None if fixed else "hint",
                    instead="pass a tensor: torch.tensor(step)",
                )
            elif compiled.framework == "jax":
                message = f"{counter} is a static argument and changes in each round: each value is compiled"
                yield Found(
                    argument,
                    "python-number-argument",
                    message,
                    instead="take it out of static_argnums and static_argnames",
                )
            else:
                message = f"{counter} is a Python number and changes in each round: each value is traced anew"
                yield Found(
                    argument, "python-number-argument", message, instead="pass a tensor: tf.constant(step, tf.int64)"
                )


def _counter(node: ast.expr, counters: set[str]) -> str | None:
    """The counter that an argument is, or is computed from with plain arithmetic."""
    if isinstance(node, ast.Name):
        return node.id if node.id in counters else None
    if isinstance(node, ast.BinOp) and not names_in(node) - counters:
        return next(iter(sorted(names_in(node))), None)
    return None


def _remainders(module: Module, step: StepBody) -> Iterator[Found]:
    """Batches that may be smaller at the end, in a loop whose compiled function gets them."""
    from_loop = names_in(step.node.target) if isinstance(step.node, (ast.For, ast.AsyncFor)) else set()
    for _ in range(3):
        for node in module.inside(step.body):
            if isinstance(node, ast.Assign) and (names_in(node.value) & from_loop or _is_next(node.value)):
                from_loop |= {
                    n for t in node.targets if not isinstance(t, (ast.Attribute, ast.Subscript)) for n in names_in(t)
                }
    for call, compiled in step.compiled:
        if compiled.is_true("dynamic") or compiled.is_true("reduce_retracing") or "input_signature" in compiled.options:
            continue
        if compiled.framework == "torch" and any(
            method(c) == "mark_dynamic" or called_name(c) == "mark_dynamic" for c in module.calls
        ):
            continue
        if not any(
            names_in(a) & from_loop - step.counters or _is_next(a)
            for a in [*call.args, *(k.value for k in call.keywords)]
        ):
            continue
        for source in step.sources:
            yield from _free_remainder(module, source, compiled, call)


def _is_next(node: ast.expr) -> bool:
    return any(
        isinstance(n, ast.Call) and (called_name(n) == "next" or method(n) == "get_next") for n in ast.walk(node)
    )


def _free_remainder(module: Module, source: ast.expr, compiled: Compiled, call: ast.Call) -> Iterator[Found]:
    name = {"tf": "tf.function", "jax": "jitted function", "torch": "torch.compile'd function"}[compiled.framework]
    consequence = f"the last batch is smaller, and the {name} in line {call.lineno} is compiled again for it"
    made = module.follow(source)
    if isinstance(made, ast.Call) and is_loader(module, made):
        if _loader_is_free(module, made):
            yield Found(made, "free-remainder", f"no drop_last=True: {consequence}", instead="drop_last=True")
        return
    batch = _free_batch(module, source)
    if batch is not None and module.uses("tensorflow", "tensorflow_datasets"):
        instead = f".{method(batch)}(..., drop_remainder=True)"
        yield Found(batch, "free-remainder", f"no drop_remainder=True: {consequence}", instead=instead)


def _loader_is_free(module: Module, loader: ast.Call) -> bool:
    size, drop = loader_argument(loader, "batch_size"), loader_argument(loader, "drop_last")
    if size is None or constant(size) is None or is_int(size, module) == 1:
        return False
    return loader_argument(loader, "batch_sampler") is None and (drop is None or constant(drop) is False)


def _free_batch(module: Module, source: ast.expr) -> ast.Call | None:
    """The .batch(n) of a pipeline whose last batch may be smaller."""
    made = pipeline(module, source)
    at = made.last("batch", "padded_batch")
    if at < 0 or made.last("unbatch", "rebatch") > at:
        return None
    batch = made.stages[at][1]
    size = batch.args[0] if batch.args else keyword(batch, "batch_size")
    drop = keyword(batch, "drop_remainder")
    if drop is None and method(batch) == "batch" and len(batch.args) > 1:
        drop = batch.args[1]
    endless = any(n == "repeat" and not c.args and not c.keywords for n, c in made.stages[:at])
    if endless or is_int(size, module) == 1 or not (drop is None or constant(drop) is False):
        return None
    return batch
