"""What runs in each step: bodies of training loops and of step functions, and what in them is on the device."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from .compiled import Compiled, CompiledFunctions
from .module import FUNCTIONS, Function, Loop, Module, called_name, constant, method, names_in
from .pipelines import sources

# Functions in which nobody trains, or in which waiting for the device is the purpose.
_NOT_TRAINING = re.compile(
    r"(^|_)(eval|evaluate|evaluation|valid|validate|validation|val|test|tests|testing|infer|inference|predict|bench|benchmark|"
    r"profile|time|timing|warm|warmup|calibrate|demo|check|verify|debug|generate|sample)($|_|\d)",
    re.I,
)
_STEP_NAME = re.compile(
    r"^_*(do_|distributed_)?(train|training|update|optimi[sz]e)_?(one_|on_|single_)?(step|batch|iter|iteration)(_fn)?$",
    re.I,
)
_MODEL_NAME = re.compile(
    r"(^|_)(model|net|network|criterion|loss_fn|loss_function|encoder|decoder|generator|discriminator|vocoder|netG|netD)$",
    re.I,
)
_OPTIMIZER_NAME = re.compile(r"(^|_)(opt|optim|optimi[sz]er|adam|sgd)(_?[a-z0-9]{1,4})?$", re.I)
_NOT_BATCHES = re.compile(
    r"optim|param|grad|sched|layer|module|callback|hook|var|fold|epoch|seed|trial|config|^ep?$", re.I
)
_ENVIRONMENTS = re.compile(r"(^|_)envs?$")
_BATCH_HOOKS = (
    "on_train_batch_end",
    "on_train_batch_start",
    "on_train_batch_begin",
    "on_batch_end",
    "on_batch_begin",
    "optimizer_step",
)
TO_HOST = ("item", "tolist", "numpy", "cpu")
_HOST_ATTRIBUTES = ("shape", "dtype", "device", "ndim", "name", "requires_grad", "grad_fn", "is_cuda", "sharding", "at")
_HOST_METHODS = (*TO_HOST, "size", "dim", "numel", "stride", "get_shape", "backward", "keys", "step", "is_ready")


@dataclass
class StepBody:
    """Statements that run in each step. `node` is the loop or the function."""

    node: Loop | Function
    body: list[ast.stmt]
    sources: list[ast.expr] = field(default_factory=list)  # what a loop goes over
    counters: set[str] = field(default_factory=set)  # Python numbers that change with each step
    compiled: list[tuple[ast.Call, Compiled]] = field(default_factory=list)
    steps: list[ast.Call] = field(default_factory=list)  # the calls that make this a training step
    trains: bool = True  # else it only calls something compiled


def find_steps(module: Module, compiled: CompiledFunctions) -> list[StepBody]:
    found = [body for loop in module.loops for body in [_loop(module, compiled, loop)] if body is not None]
    return found + [
        body for f in module.functions for body in [_function(module, compiled, f, found)] if body is not None
    ]


def _loop(module: Module, compiled: CompiledFunctions, loop: Loop) -> StepBody | None:
    if compiled.enclosing(loop) is not None:  # a loop of the graph, or unrolled while tracing
        return None
    body = StepBody(loop, loop.body)
    calls = [n for n in module.inside(loop.body, loops=False) if isinstance(n, ast.Call)]
    body.compiled = [(c, k) for c in calls for k in [compiled.of(c)] if k is not None]
    body.counters = _counters(module, loop)
    if isinstance(loop, (ast.For, ast.AsyncFor)):
        body.sources = sources(module, loop.iter)
    for call in calls:
        if called_name(call) == "next" and call.args:
            body.sources += sources(module, call.args[0])
        elif method(call) == "get_next" and isinstance(call.func, ast.Attribute):
            body.sources += sources(module, call.func.value)
    body.steps = [c for c in calls if _is_step(module, compiled, c)]
    body.trains = bool(body.steps) and _may_train(module, loop, calls)
    return body if body.trains or body.compiled else None


def _may_train(module: Module, loop: Loop, calls: list[ast.Call]) -> bool:
    if isinstance(loop.body[-1], (ast.Break, ast.Return)):
        return False
    if isinstance(loop, (ast.For, ast.AsyncFor)):
        names = names_in(loop.target).union(_last_names(loop.iter))
        if any(_NOT_BATCHES.search(n) for n in names) or isinstance(loop.iter, (ast.List, ast.Tuple)):
            return False
        if _rounds(loop.iter) <= 20:  # an example
            return False
    for call in calls:  # an environment wants the value at once
        if (
            method(call) == "step"
            and isinstance(call.func, ast.Attribute)
            and any(map(_ENVIRONMENTS.search, _last_names(call.func.value)))
        ):
            return False
    return trains_here(module, loop)


def _rounds(iterated: ast.expr) -> float:
    """The rounds of `for ... in range(10)`; infinite where they are not to be seen."""
    if isinstance(iterated, ast.Call) and called_name(iterated) == "range" and iterated.args:
        end = constant(iterated.args[min(1, len(iterated.args) - 1)])
        if isinstance(end, int):
            return end
    return float("inf")


def trains_here(module: Module, node: ast.AST) -> bool:
    """Whether no enclosing function or `with` says that this is a test, an evaluation or a benchmark."""
    for parent in module.above(node):
        if isinstance(parent, FUNCTIONS) and not _may_be_named(parent.name):
            return False
        if isinstance(parent, ast.ClassDef) and re.search(r"Test|Benchmark|Profil", parent.name):
            return False
        if isinstance(parent, ast.With):
            for item in parent.items:
                if isinstance(item.context_expr, ast.Call) and called_name(item.context_expr) in (
                    "no_grad",
                    "inference_mode",
                    "profile",
                ):
                    return False
    return True


def _may_be_named(name: str) -> bool:
    """train_and_validate trains, test_train does not."""
    return not _NOT_TRAINING.search(name) or ("train" in name and not re.match("_*(test|bench|profile|time)", name))


def _is_step(module: Module, compiled: CompiledFunctions, call: ast.Call) -> bool:
    name = called_name(call)
    if method(call) in ("backward", "manual_backward", "apply_gradients", "train_on_batch"):
        return True
    if method(call) == "step" and isinstance(call.func, ast.Attribute):
        return any(_OPTIMIZER_NAME.search(n) or n == "scaler" for n in _last_names(call.func.value))
    if module.dotted(call.func) == "optax.apply_updates":
        return True
    if _STEP_NAME.match(name):
        return True
    return compiled.of(call) is not None and _carries_state(module, call)


def _carries_state(module: Module, call: ast.Call) -> bool:
    """state, loss = step(state, batch): what comes back goes in again."""
    parent = module.parents.get(call)
    if not isinstance(parent, ast.Assign):
        return False
    targets = set().union(*(names_in(t) for t in parent.targets))
    return any(isinstance(a, ast.Name) and a.id in targets for a in call.args) and len(targets) > 1


def _last_names(node: ast.expr) -> list[str]:
    """`optimizer` of optimizer, self.optimizer and optimizers[0]."""
    if isinstance(node, ast.Subscript):
        return [n.rstrip("s") for n in _last_names(node.value)]
    return [node.id] if isinstance(node, ast.Name) else [node.attr] if isinstance(node, ast.Attribute) else []


def _counters(module: Module, loop: Loop) -> set[str]:
    found: set[str] = set()
    if isinstance(loop, (ast.For, ast.AsyncFor)) and isinstance(loop.iter, ast.Call):
        name = called_name(loop.iter)
        if name in ("range", "trange") and isinstance(loop.target, ast.Name):
            found.add(loop.target.id)
        elif name == "enumerate" and isinstance(loop.target, ast.Tuple) and isinstance(loop.target.elts[0], ast.Name):
            found.add(loop.target.elts[0].id)
    for node in module.inside(loop.body, loops=False):
        if not isinstance(node, ast.AugAssign) or not isinstance(node.target, ast.Name):
            continue
        if _is_number(node.value, found) and _starts_as_number(module, loop, node.target.id):
            found.add(node.target.id)
    return found


def _is_number(node: ast.expr, counters: set[str]) -> bool:
    return isinstance(constant(node), (int, float)) or (isinstance(node, ast.Name) and node.id in counters)


def _starts_as_number(module: Module, loop: Loop, name: str) -> bool:
    """Whether a name was a plain number before the loop."""
    scope = module.scope(loop)
    for node in module.inside(getattr(scope, "body", [])):
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return isinstance(constant(node.value), (int, float))
    return False


def _function(
    module: Module, compiled: CompiledFunctions, function: Function, loops: list[StepBody]
) -> StepBody | None:
    """A function that is a step: Lightning's training_step, a callback's hook, a train_step with a backward pass."""
    owner = module.enclosing_class(function)
    bases = " ".join(ast.unparse(b) for b in owner.bases) if owner is not None else ""
    body = StepBody(function, function.body)
    if function in compiled.bodies or not trains_here(module, function):
        return None
    if function.name == "training_step" and "LightningModule" in bases:
        return body
    if function.name in _BATCH_HOOKS and re.search(r"Callback|LightningModule", bases):
        return body
    backward = [
        n
        for n in module.inside(function.body, loops=False)
        if isinstance(n, ast.Call) and method(n) in ("backward", "apply_gradients")
    ]
    called = any(
        module.function(c.func) is function
        for b in loops
        if b.trains or _STEP_NAME.match(function.name)
        for c in b.steps
    )
    if backward and _STEP_NAME.match(function.name) and called:
        body.steps = backward
        return body
    return None


class OnDevice:
    """Which names of a step hold values that the device computes."""

    def __init__(self, module: Module, compiled: CompiledFunctions, step: StepBody) -> None:
        self._module, self._compiled = module, compiled
        self.names: set[str] = set()
        nodes = list(module.inside(step.body))
        for node in nodes:
            if isinstance(node, ast.Call):
                self._add_losses(node)
        if isinstance(step.node, FUNCTIONS) and step.node.name == "training_step":
            self.names |= {
                t.id
                for n in nodes
                if isinstance(n, ast.Assign)
                for t in n.targets
                if isinstance(t, ast.Name) and t.id == "loss"
            }
        assigned = [n for n in nodes if isinstance(n, ast.Assign)]
        for _ in range(3):
            for node in assigned:
                targets = [
                    n
                    for t in node.targets
                    for n in (
                        [t] if isinstance(t, ast.Name) else t.elts if isinstance(t, (ast.Tuple, ast.List)) else []
                    )
                ]
                if self.holds(node.value):
                    self.names |= {n.id for n in targets if isinstance(n, ast.Name)}
                elif isinstance(node.value, ast.Call):
                    self.names -= {n.id for n in targets if isinstance(n, ast.Name)}  # loss = loss.item()

    def _add_losses(self, call: ast.Call) -> None:
        """`loss` of loss.backward(), scaler.scale(loss / n).backward(), fabric.backward(loss), tape.gradient(loss)."""
        if method(call) in ("backward", "manual_backward"):
            assert isinstance(call.func, ast.Attribute)
            if not call.args:
                self.names |= {n for n in names_in(call.func.value) if n not in ("self", "scaler", "torch")}
            elif isinstance(call.args[0], ast.Name):
                self.names.add(call.args[0].id)
        elif method(call) == "gradient" and call.args and isinstance(call.args[0], ast.Name):
            self.names.add(call.args[0].id)

    def holds(self, node: ast.expr | None) -> bool:
        """Whether an expression's value is on the device, for certain."""
        if isinstance(node, ast.Name):
            return node.id in self.names
        if isinstance(node, ast.Attribute):
            return node.attr not in _HOST_ATTRIBUTES and self.holds(node.value)
        if isinstance(node, (ast.Subscript, ast.Starred)):
            return self.holds(node.value)
        if isinstance(node, ast.UnaryOp):
            return self.holds(node.operand)
        if isinstance(node, ast.BinOp):
            return self.holds(node.left) or self.holds(node.right)
        if isinstance(node, ast.Compare):
            return not any(isinstance(o, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for o in node.ops) and (
                self.holds(node.left) or any(map(self.holds, node.comparators))
            )
        if isinstance(node, (ast.Tuple, ast.List)):
            return any(map(self.holds, node.elts))
        return isinstance(node, ast.Call) and self._call(node)

    def _call(self, call: ast.Call) -> bool:
        name = self._module.dotted(call.func)
        if name:
            if name.startswith(("torch.", "jax.", "tensorflow.", "optax.")) and name not in ("jax.device_get",):
                return any(map(self.holds, call.args)) and not name.endswith((".size", ".shape"))
            return False
        if isinstance(call.func, ast.Attribute):
            if self.holds(call.func.value):
                return call.func.attr not in _HOST_METHODS
            if call.func.attr in ("to", "cuda") and self._is_to_device(call):
                return True
            if call.func.attr == "result" and self._module.uses("tensorflow", "keras"):
                return self._is_keras_metric(call.func.value)
        if self._compiled.of(call) is not None:
            return True
        if _STEP_NAME.match(called_name(call)):
            return self._gives_tensors(call)
        return any(_MODEL_NAME.search(n) for n in _last_names(call.func)) and self._module.uses(
            "torch", "tensorflow", "keras"
        )

    def _is_to_device(self, call: ast.Call) -> bool:
        if method(call) == "cuda":
            return True
        return any(
            "device" in ast.unparse(a) or "cuda" in ast.unparse(a)
            for a in [*call.args, *(k.value for k in call.keywords)]
        )

    def _is_keras_metric(self, node: ast.expr) -> bool:
        value = self._module.follow(node)
        return isinstance(value, ast.Call) and self._module.dotted(value.func).startswith("keras.metrics.")

    def _gives_tensors(self, call: ast.Call) -> bool:
        """Whether train_step(...) is in this file and returns what it has not yet read."""
        function = self._module.function(call.func)
        if function is None:
            return False
        returns = [n for n in self._module.inside(function.body) if isinstance(n, ast.Return) and n.value is not None]
        read = ("item", "numpy", "cpu", "tolist", "float", "device_get", "detach")
        inside = [c for r in returns for c in ast.walk(r) if isinstance(c, ast.Call)]
        return bool(returns) and not any(called_name(c) in read for c in inside) and self._backward_in(function)

    def _backward_in(self, function: Function) -> bool:
        calls = (c for c in ast.walk(function) if isinstance(c, ast.Call))
        return any(method(c) in ("backward", "apply_gradients") for c in calls)
