"""Where batches come from: stages of tf.data, DataLoaders, and what wraps them on the way to a loop."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from .module import Module, called_name, constant, has_stars, keyword, method

_STAGES = frozenset(
    "map batch padded_batch ragged_batch prefetch shuffle repeat cache take skip filter apply interleave flat_map "
    "unbatch with_options enumerate shard window concatenate ignore_errors rebatch bucket_by_sequence_length snapshot "
    "group_by_window map_with_state scan".split()
)
BATCHING = ("batch", "padded_batch", "ragged_batch", "bucket_by_sequence_length", "rebatch", "group_by_window")
DATALOADER = "torch.utils.data.DataLoader"
_LOADER_ARGUMENTS = (
    "dataset batch_size shuffle sampler batch_sampler num_workers collate_fn pin_memory drop_last".split()
)
_WRAPPERS = frozenset("enumerate tqdm trange iter zip islice track as_numpy reversed".split())


@dataclass
class Pipeline:
    """x.map(f).batch(8) as [("map", call), ("batch", call)]; `root` is x."""

    root: ast.expr | None
    stages: list[tuple[str, ast.Call]]

    def names(self) -> list[str]:
        return [name for name, _ in self.stages]

    def last(self, *names: str) -> int:
        """Where one of these stages was last; -1 for nowhere."""
        return max((i for i, (name, _) in enumerate(self.stages) if name in names), default=-1)


def pipeline(module: Module, node: ast.expr | None) -> Pipeline:
    """The stages that made a dataset, through names and functions of this file."""
    stages: list[tuple[str, ast.Call]] = []
    seen: set[ast.AST] = set()
    while node is not None and node not in seen:
        seen.add(node)
        node = module.follow(node)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            break
        if method(node) not in _STAGES or module.dotted(node.func):  # tf.data.Dataset.zip(...) is a root
            break
        stages.append((method(node), node))
        node = node.func.value
    return Pipeline(node, stages[::-1])


def is_tf_dataset(module: Module, root: ast.expr | None) -> bool:
    """Whether a pipeline starts at a dataset of tf.data for certain."""
    name = module.dotted(root.func) if isinstance(root, ast.Call) else ""
    return name.startswith("tensorflow.data.") or name in ("tensorflow_datasets.load",)


def loader_argument(call: ast.Call, name: str) -> ast.expr | None:
    """An argument of DataLoader(...), by name or place."""
    place = _LOADER_ARGUMENTS.index(name) if name in _LOADER_ARGUMENTS else len(call.args)
    return call.args[place] if place < len(call.args) else keyword(call, name)


def is_loader(module: Module, node: ast.AST | None) -> bool:
    """Whether this is DataLoader(...) with all its arguments in sight."""
    return isinstance(node, ast.Call) and module.dotted(node.func) == DATALOADER and not has_stars(node)


def sources(module: Module, node: ast.expr | None, depth: int = 0) -> list[ast.expr]:
    """What a loop really goes over: enumerate(tqdm(loader)) -> [loader], zip(a, b) -> [a, b]."""
    if depth < 8 and isinstance(node, (ast.Name, ast.Attribute)):
        followed = module.follow(node)
        if isinstance(followed, ast.Call) and called_name(followed) in _WRAPPERS:
            return sources(module, followed, depth + 1)
    if depth < 8 and isinstance(node, ast.Call):
        if called_name(node) in _WRAPPERS and node.args:
            return [s for a in node.args for s in sources(module, a, depth + 1)]
        if method(node) in ("as_numpy_iterator", "__iter__"):
            assert isinstance(node.func, ast.Attribute)
            return sources(module, node.func.value, depth + 1)
    return [] if node is None else [node]


def is_in_memory(module: Module, dataset: ast.expr | None) -> bool:
    """Whether a dataset is surely cheap: tensors, a list, a range, or a class of this file that only indexes."""
    node = module.follow(dataset)
    if isinstance(node, (ast.List, ast.Tuple, ast.ListComp, ast.Constant, ast.Dict)):
        return True
    if not isinstance(node, ast.Call):
        return False
    name = called_name(node)
    if name in (
        "TensorDataset",
        "range",
        "list",
        "zip",
        "FakeData",
        "FeedDataset",
        "arange",
        "randn",
        "rand",
        "randint",
        "tensor",
    ):
        return True
    if name in ("Subset", "ConcatDataset", "random_split") and node.args:
        return is_in_memory(module, node.args[0])
    owner = next((c for c in module.classes if c.name == name), None)
    if owner is None:
        return False
    getters = [
        f
        for f in owner.body
        if isinstance(f, ast.FunctionDef) and f.name in ("__getitem__", "__iter__", "__getitems__")
    ]
    return bool(getters) and not any(
        isinstance(n, ast.Call) and not _is_cheap(module, n) for g in getters for n in ast.walk(g)
    )


_CHEAP = frozenset(
    "len int float str min max range enumerate iter next list dict tuple get copy clone long "
    "isinstance unsqueeze super".split()
)


def _is_cheap(module: Module, call: ast.Call) -> bool:
    name = module.dotted(call.func)
    if name.startswith(("torch.", "numpy.random.", "random.")) and not name.endswith("load"):
        return True
    return called_name(call) in _CHEAP


def is_int(node: ast.expr | None, module: Module) -> int | None:
    """A literal number, also by a name that never has another value."""
    while isinstance(node, (ast.Name, ast.Attribute)):
        node = module.only_value(node)
    value = constant(node)
    return value if type(value) is int else None
