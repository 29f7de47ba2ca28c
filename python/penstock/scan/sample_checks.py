"""What runs in Python for each sample: in a map, or in a dataset's __getitem__."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Dict, Optional

from .file import File, Found
from .module import FUNCTIONS, Function, Module, constant, has_stars, keyword, method, names_in
from .pipelines import BATCHING, pipeline

Calls = Dict[ast.AST, Optional[ast.Call]]  # functions, and the .map(...) that calls each

_PYTHON_OPS = ("tensorflow.numpy_function", "tensorflow.py_function", "tensorflow.py_func")
_CHEAP_LIBROSA = (
    "get_duration",
    "get_samplerate",
    "time_to_frames",
    "frames_to_time",
    "samples_to_frames",
    "filters.mel",
)
_MAPS = ("map", "interleave", "flat_map", "filter", "map_with_index", "random_map")
_DATASET_BASES = ("Dataset", "Sequence", "PyDataset", "IterDataPipe", "MapDataPipe", "RandomAccessDataSource")


def check(file: File) -> Iterator[Found]:
    mapped = _mapped(file.module)
    yield from _python_in_maps(file.module, mapped)
    yield from _per_sample(file.module, mapped)


def _mapped(module: Module) -> Calls:
    """The functions and lambdas of this file that a .map(...) or its like calls, directly or through others."""
    found: Calls = {}
    for call in module.calls:
        if method(call) in _MAPS and call.args and not module.dotted(call.func):
            first = call.args[0]
            function = first if isinstance(first, ast.Lambda) else module.function(first)
            if function is not None:
                found.setdefault(function, call)
    _add_called(module, found)
    return found


def _add_called(module: Module, found: Calls) -> None:
    """Adds what the functions in `found` always call, or hand to TensorFlow to be called."""
    todo = list(found)
    while todo:
        function = todo.pop()
        for call in (n for n in ast.walk(function) if isinstance(n, ast.Call)):
            targets = (
                [call.func, call.args[0]] if module.dotted(call.func) in _PYTHON_OPS and call.args else [call.func]
            )
            for target in targets:
                inner = module.function(target)
                if (
                    inner is not None
                    and inner not in found
                    and not _is_cached(inner)
                    and not module.is_guarded(call, function)
                ):
                    found[inner] = found[function]
                    todo.append(inner)


def _is_cached(function: Function) -> bool:
    return any("cache" in ast.unparse(d) for d in function.decorator_list)


def _python_in_maps(module: Module, mapped: Calls) -> Iterator[Found]:
    for call in module.calls:
        name = module.dotted(call.func)
        if name not in _PYTHON_OPS or _has_no_inputs(call):
            continue
        outer = next((p for p in module.above(call) if p in mapped), None)
        if outer is None:
            continue
        at = mapped[outer]
        assert at is not None and isinstance(at.func, ast.Attribute)
        batched = pipeline(module, at.func.value).last(*BATCHING) >= 0
        short = name.rpartition(".")[2]
        yield Found(
            call,
            "tf-python-map",
            f"tf.{short} runs Python for each {'batch' if batched else 'sample'} of the map in line {at.lineno}",
            level="warning" if batched else None,
        )


def _has_no_inputs(call: ast.Call) -> bool:
    """Whether it makes elements instead of changing them: tf.numpy_function(next_batch, [], ...)."""
    inputs = call.args[1] if len(call.args) > 1 else keyword(call, "inp")
    return isinstance(inputs, (ast.List, ast.Tuple)) and not inputs.elts


def _per_sample(module: Module, mapped: Calls) -> Iterator[Found]:
    for function, place in _places(module, mapped).items():
        scope = module.enclosing_function(function) if isinstance(function, ast.Lambda) else function
        for call in (n for n in ast.walk(function) if isinstance(n, ast.Call)):
            if module.enclosing_function(call) is scope and not module.is_guarded(call, function):
                yield from _expensive(module, call, place)


def _places(module: Module, mapped: Calls) -> dict[ast.AST, str]:
    """Every function that runs for each sample, and what makes it do so."""
    places: dict[ast.AST, str] = {}
    for owner in module.classes:
        getter = _getter(owner)
        if getter is not None:
            runs: Calls = {getter: None}
            _add_called(module, runs)
            for function in runs:
                places.setdefault(function, f"{owner.name}.{getter.name}")
    if module.uses("tensorflow", "tensorflow_datasets", "grain", "torchdata") and not module.uses("datasets"):
        for function, call in mapped.items():  # Hugging Face's map runs once, and keeps its results
            if call is not None:
                places.setdefault(function, f"the map in line {call.lineno}")
    return places


def _getter(owner: ast.ClassDef) -> Function | None:
    """What a dataset runs for each sample; None for other classes."""
    bases = [ast.unparse(base).partition("[")[0] for base in owner.bases]
    methods = {f.name: f for f in owner.body if isinstance(f, FUNCTIONS)}
    if any(base.endswith("IterableDataset") for base in bases):
        return methods.get("__iter__")
    is_dataset = "__len__" in methods or any(base.endswith(_DATASET_BASES) for base in bases)
    return methods.get("__getitem__") if is_dataset else None


def _expensive(module: Module, call: ast.Call, place: str) -> Iterator[Found]:
    name = module.dotted(call.func)
    package, _, rest = name.partition(".")
    if package == "librosa" and rest and not rest.startswith(("util.", "display.")) and rest not in _CHEAP_LIBROSA:
        yield Found(call, "per-sample-audio", f"{name} runs for each sample, in {place}")
    elif name in ("soundfile.read", "soundfile.SoundFile"):
        yield Found(
            call, "per-sample-audio", f"{name} decodes each sample again in every epoch, in {place}", level="hint"
        )
    elif name == "numpy.load" and not has_stars(call) and len(call.args) < 2 and not keyword(call, "mmap_mode"):
        path = ast.unparse(call.args[0]) if call.args else ""
        if ".npz" not in path and constant(keyword(call, "allow_pickle")) is not True and not _has_fields(module, call):
            yield Found(call, "np-load-copy", f"np.load copies the whole array for each sample, in {place}")


def _has_fields(module: Module, call: ast.Call) -> bool:
    """Whether what np.load gives is used as an .npz: data["mel"]."""
    parent = module.parents.get(call)
    if isinstance(parent, ast.withitem):
        return True
    if isinstance(parent, ast.Subscript):
        return isinstance(constant(parent.slice), str)
    if not isinstance(parent, ast.Assign) or not isinstance(parent.targets[0], ast.Name):
        return False
    name = parent.targets[0].id
    for node in ast.walk(module.scope(parent)):
        is_field = isinstance(node, ast.Subscript) and isinstance(constant(node.slice), str)
        is_listing = isinstance(node, ast.Attribute) and node.attr in ("files", "item", "items")
        if (is_field or is_listing) and names_in(node.value) == {name}:  # type: ignore[attr-defined]
            return True
    return False
