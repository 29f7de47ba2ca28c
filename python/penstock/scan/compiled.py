"""Which functions are compiled: tf.function, jax.jit and torch.compile, as decorators, calls and partials."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from .module import FUNCTIONS, Function, Module, constant, keyword

_COMPILERS = {
    "tensorflow.function": "tf",
    "jax.jit": "jax",
    "jax.pmap": "jax",
    "flax.nnx.jit": "jax",
    "equinox.filter_jit": "jax",
    "torch.compile": "torch",
}
_THROUGH = ("jax.value_and_grad", "jax.grad", "jax.vmap", "jax.checkpoint", "jax.remat", "functools.partial")


@dataclass
class Compiled:
    framework: str  # tf, jax or torch
    options: dict[str, ast.expr] = field(default_factory=dict)
    body: Function | ast.Lambda | None = None

    def is_true(self, option: str) -> bool:
        return constant(self.options.get(option)) is True

    def static_shapes(self) -> bool:
        """Whether every dimension of every argument is fixed by its signature."""
        signature = self.options.get("input_signature")
        if not isinstance(signature, (ast.List, ast.Tuple)) or not signature.elts:
            return False
        for spec in signature.elts:
            shape = spec.args[0] if isinstance(spec, ast.Call) and spec.args else None
            if shape is None and isinstance(spec, ast.Call):
                shape = keyword(spec, "shape")
            if not isinstance(shape, (ast.List, ast.Tuple)):
                return False
            if not all(type(constant(d)) is int or isinstance(d, ast.Name) for d in shape.elts):
                return False
        return True

    def static_arguments(self, call: ast.Call) -> list[ast.expr]:
        """The arguments of a call of a jitted function whose values are part of what is compiled."""
        numbers = _ints(self.options.get("static_argnums"))
        names = _strings(self.options.get("static_argnames"))
        if self.body is not None:
            positional = [a.arg for a in [*self.body.args.posonlyargs, *self.body.args.args]]
            if positional[:1] == ["self"]:
                numbers, positional = [n - 1 for n in numbers], positional[1:]
            numbers += [positional.index(n) for n in names if n in positional]
            names += [positional[n] for n in numbers if 0 <= n < len(positional)]
        found = [a for i, a in enumerate(call.args) if i in numbers]
        return found + [k.value for k in call.keywords if k.arg in names]


def _ints(node: ast.expr | None) -> list[int]:
    parts = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
    return [v for v in map(constant, parts) if type(v) is int]


def _strings(node: ast.expr | None) -> list[str]:
    parts = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
    return [v for v in map(constant, parts) if isinstance(v, str)]


class CompiledFunctions:
    """All that a module compiles."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._of_function: dict[ast.AST, Compiled] = {}
        for function in module.functions:
            for decorator in function.decorator_list:
                compiled = self._compiler(decorator)
                if compiled is not None:
                    compiled.body = function
                    self._of_function[function] = compiled
        self.bodies = dict(self._of_function)  # by the function or lambda that is compiled
        for call in module.calls:
            compiled = self._compiling(call)
            if compiled is not None and compiled.body is not None:
                self.bodies.setdefault(compiled.body, compiled)

    def of(self, call: ast.Call) -> Compiled | None:
        """What a call runs, where that is compiled."""
        function = self._module.function(call.func)
        if function is not None and function in self._of_function:
            return self._of_function[function]
        if isinstance(call.func, (ast.Name, ast.Attribute)):
            value = self._module.follow(call.func)
            if isinstance(value, ast.Call):
                return self._compiling(value)
        return None

    def _compiler(self, node: ast.expr) -> Compiled | None:
        """What @jit, @jit(...) or @partial(jit, ...) does to a function."""
        framework = _COMPILERS.get(self._module.dotted(node))
        if framework:
            return Compiled(framework)
        if not isinstance(node, ast.Call):
            return None
        options = {k.arg: k.value for k in node.keywords if k.arg}
        framework = _COMPILERS.get(self._module.dotted(node.func))
        if framework and not node.args:
            return Compiled(framework, options)
        if self._module.dotted(node.func) == "functools.partial" and node.args:
            framework = _COMPILERS.get(self._module.dotted(node.args[0]))
            return Compiled(framework, options) if framework else None
        return None

    def _compiling(self, call: ast.Call) -> Compiled | None:
        """The compiled function that jit(f, ...) or partial(jit, ...)(f) gives."""
        if not call.args:
            return None
        framework = _COMPILERS.get(self._module.dotted(call.func))
        options = {k.arg: k.value for k in call.keywords if k.arg}
        compiled = Compiled(framework, options) if framework else None
        if compiled is None and isinstance(call.func, ast.Call):
            compiled = self._compiler(call.func)
        if compiled is not None:
            compiled.body = self._function(call.args[0])
        return compiled

    def _function(self, node: ast.expr) -> Function | ast.Lambda | None:
        while isinstance(node, ast.Call) and self._module.dotted(node.func) in _THROUGH and node.args:
            node = node.args[0]
        return node if isinstance(node, ast.Lambda) else self._module.function(node)

    def enclosing(self, node: ast.AST) -> Compiled | None:
        """The compiled function that a node is traced in."""
        for parent in self._module.above(node):
            if parent in self.bodies:
                return self.bodies[parent]
            if isinstance(parent, (*FUNCTIONS, ast.Lambda)) and self._is_callback(parent):
                return None
        return None

    def _is_callback(self, function: ast.AST) -> bool:
        """Whether a function inside a compiled one is meant for the host: py_function or a callback gets it."""
        name = getattr(function, "name", None)
        for call in self._module.calls:
            if self._module.dotted(call.func).rpartition(".")[2] in _HOST_CALLS and call.args:
                first = call.args[0]
                if first is function or (isinstance(first, ast.Name) and first.id == name):
                    return True
        return False


_HOST_CALLS = ("py_function", "numpy_function", "pure_callback", "io_callback", "callback")
