"""A parsed Python file and what its names mean: imports, the last assignment before a use, who encloses whom."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Iterator
from typing import Union

Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]
Loop = Union[ast.For, ast.AsyncFor, ast.While]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
_SCOPES = (*FUNCTIONS, ast.Lambda, ast.ClassDef, ast.Module)
_DEPTH = 12  # of names that stand for names

_SPELLINGS = {  # other paths to the same thing
    "tensorflow.compat.v1.": "tensorflow.",
    "tensorflow.compat.v2.": "tensorflow.",
    "tensorflow.python.keras.": "keras.",
    "tensorflow.keras.": "keras.",
    "tf_keras.": "keras.",
    "torch.utils.data.dataloader.": "torch.utils.data.",
    "torch.utils.data.dataset.": "torch.utils.data.",
    "pytorch_lightning.": "lightning.pytorch.",
}


class Binding:
    """A name gets `value` as a whole, or (not `whole`) something of it: unpacking, a loop's target, `with ... as`."""

    def __init__(self, node: ast.AST, value: ast.expr | None, whole: bool) -> None:
        self.node, self.value, self.whole = node, value, whole


def position(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def names_in(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((k.value for k in call.keywords if k.arg == name), None)


def has_stars(call: ast.Call) -> bool:
    """Whether some arguments are not to be seen here: f(*a), f(**k)."""
    return any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args)


def constant(node: ast.AST | None) -> object:
    """The value of a literal; an Ellipsis for everything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -node.operand.value if isinstance(node.operand.value, (int, float)) else ...
    return node.value if isinstance(node, ast.Constant) else ...


def method(call: ast.Call) -> str:
    """`f` of x.f(...); empty where nothing is before the dot."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def called_name(call: ast.Call) -> str:
    """The last part of what is called: `f` of f(...) and x.f(...)."""
    return call.func.id if isinstance(call.func, ast.Name) else method(call)


class Module:
    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text)
        self.lines = text.splitlines()
        self.imports: dict[str, str] = {}
        self.parents: dict[ast.AST, ast.AST] = {}
        self.calls: list[ast.Call] = []
        self.functions: list[Function] = []
        self.classes: list[ast.ClassDef] = []
        self.loops: list[Loop] = []
        self.strings: set[str] = set()
        self._bindings: dict[tuple[ast.AST, str], list[Binding]] = {}  # by scope and name, in the file's order
        self._places: dict[tuple[ast.AST, str], list[tuple[int, int]]] = {}
        self._dotted: dict[ast.AST, str] = {}
        self._walk()
        self.roots = {name.partition(".")[0] for name in self.imports.values()}

    def uses(self, *packages: str) -> bool:
        """Whether one of these packages is imported anywhere."""
        return not self.roots.isdisjoint(packages)

    # ---- who encloses whom

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """What encloses a node, from inside to outside."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def scope(self, node: ast.AST) -> ast.AST:
        """The function, lambda, class or module whose names an expression sees."""
        child = node
        for parent in self.above(node):
            if isinstance(parent, _SCOPES) and not _is_outside(parent, child):
                return parent
            child = parent
        return self.tree

    def enclosing_function(self, node: ast.AST) -> Function | None:
        return next((p for p in self.above(node) if isinstance(p, FUNCTIONS)), None)

    def enclosing_class(self, node: ast.AST) -> ast.ClassDef | None:
        return next((p for p in self.above(node) if isinstance(p, ast.ClassDef)), None)

    # ---- what a name means

    def dotted(self, node: ast.AST | None) -> str:
        """tf.data.Dataset -> "tensorflow.data.Dataset" by the file's imports; empty where the root is not imported."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return ""
        if node not in self._dotted:
            self._dotted[node] = self._find_dotted(node, 0)
        return self._dotted[node]

    def _find_dotted(self, node: ast.expr, depth: int) -> str:
        parts: list[str] = []
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            parts.append(root.attr)
            root = root.value
        if not isinstance(root, ast.Name) or depth > _DEPTH:
            return ""
        binding = self.binding(root)
        at_top = binding in self._bindings.get((self.tree, root.id), ())
        if binding is None or (at_top and root.id in self.imports):  # `except ImportError: torch = None` hides nothing
            start = self.imports.get(root.id, "")
        elif binding.whole and isinstance(binding.value, (ast.Name, ast.Attribute)):
            start = self._find_dotted(binding.value, depth + 1)
        else:
            return ""
        if not start:
            return ""
        name = ".".join([start, *reversed(parts)])
        for other, ours in _SPELLINGS.items():
            if name.startswith(other):
                name = ours + name[len(other) :]
        return name

    def binding(self, name: ast.Name) -> Binding | None:
        """What gave a name its value: the last place before the use, or of an enclosing scope the last of all."""
        scope: ast.AST = self.scope(name)
        here = True
        while True:
            found = self._bindings.get((scope, name.id), ())
            if found and here:
                last = bisect_left(self._places[scope, name.id], position(name)) - 1
                while last >= 0 and self._contains(found[last].node, name):
                    last -= 1
                if last >= 0:
                    return found[last]
            elif found and not isinstance(scope, ast.ClassDef):
                return found[-1]
            if scope is self.tree:
                return None
            scope, here = self.scope(scope), False

    def attribute(self, node: ast.AST) -> Binding | None:
        """What gave self.x its value, where the class does so in one place only."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            owner = self.enclosing_class(node)
            found = self._bindings.get((owner, f"self.{node.attr}"), []) if owner else []
            return found[0] if len(found) == 1 else None
        return None

    def only_value(self, node: ast.Name | ast.Attribute) -> ast.expr | None:
        """The value of a name or self.x that is set in one place only; None for all others."""
        binding = self.binding(node) if isinstance(node, ast.Name) else self.attribute(node)
        if binding is None or not binding.whole or binding.value is node:
            return None
        alone = any(found == [binding] for found in self._bindings.values())
        return binding.value if alone else None

    def follow(self, node: ast.expr | None, depth: int = 0) -> ast.expr | None:
        """The expression that a name, a self.x or a call of a function with one `return` in this file stands for."""
        if depth > _DEPTH or node is None:
            return node
        binding = None
        if isinstance(node, ast.Name):
            binding = self.binding(node)
        elif isinstance(node, ast.Attribute):
            binding = self.attribute(node)
        elif isinstance(node, ast.Call):
            returned = self.returned(node)
            return self.follow(returned, depth + 1) if returned is not None else node
        if binding is None or not binding.whole or binding.value is None or binding.value is node:
            return node
        return self.follow(binding.value, depth + 1)

    def returned(self, call: ast.Call) -> ast.expr | None:
        """What a call of a plain function of this file gives, where it has a single `return`."""
        function = self.function(call.func)
        if function is None or function.decorator_list:
            return None
        returns = [r for r in self.inside(function.body) if isinstance(r, ast.Return) and r.value is not None]
        return returns[0].value if len(returns) == 1 and isinstance(returns[0], ast.Return) else None

    def function(self, node: ast.AST | None, depth: int = 0) -> Function | None:
        """The function of this file that an expression names: f, self.f, partial(f, ...)."""
        if depth > _DEPTH:
            return None
        if isinstance(node, ast.Name):
            binding = self.binding(node)
            if binding is None:
                return None
            if isinstance(binding.node, FUNCTIONS) and binding.value is None and not _is_parameter(binding):
                return binding.node
            return self.function(binding.value, depth + 1) if binding.whole else None
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            owner = self.enclosing_class(node)
            methods = [m for m in owner.body if isinstance(m, FUNCTIONS) and m.name == node.attr] if owner else []
            return methods[0] if len(methods) == 1 else None
        if isinstance(node, ast.Call) and self.dotted(node.func) == "functools.partial" and node.args:
            return self.function(node.args[0], depth + 1)
        return None

    # ---- parts of a body

    def inside(self, body: list[ast.stmt], *, loops: bool = True) -> Iterator[ast.AST]:
        """Every node of a body but those of functions and classes (and, if asked, loops) that it defines."""
        closed: tuple[type[ast.AST], ...] = (
            (*FUNCTIONS, ast.Lambda, ast.ClassDef) if loops else (*FUNCTIONS, ast.Lambda, ast.ClassDef, *LOOPS)
        )
        todo: list[ast.AST] = list(reversed(body))
        while todo:
            node = todo.pop()
            yield node
            if not isinstance(node, closed):
                todo.extend(reversed(list(ast.iter_child_nodes(node))))

    def is_guarded(self, node: ast.AST, body: ast.AST) -> bool:
        """Whether something between a node and the body around it decides if it runs: an `if`, an `except`, an early
        `continue` (in a function also an early `return`)."""
        child = node
        leaving = (ast.Continue,) if isinstance(body, LOOPS) else (ast.Continue, ast.Return)
        for parent in self.above(node):
            if isinstance(parent, ast.If) and child is not parent.test and constant(parent.test) is not True:
                return True
            if isinstance(parent, ast.IfExp) and child is not parent.test:
                return True
            if isinstance(parent, ast.BoolOp) and child is not parent.values[0]:
                return True
            if isinstance(parent, (ast.ExceptHandler, ast.Assert)) or type(parent).__name__ == "match_case":
                return True
            for block in ("body", "orelse", "finalbody"):
                statements = getattr(parent, block, None)
                if isinstance(statements, list) and child in statements:
                    if any(_leaves(s, leaving) for s in statements[: statements.index(child)]):
                        return True
                    if block == "orelse" and isinstance(parent, LOOPS):
                        return True
            if parent is body:
                return False
            child = parent
        return False

    # ---- reading the tree once

    def _walk(self) -> None:
        todo: list[ast.AST] = [self.tree]
        while todo:
            node = todo.pop()
            for child in ast.iter_child_nodes(node):
                if isinstance(child, (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)):
                    continue
                self.parents[child] = node
                todo.append(child)
        for node in self.parents:
            self._take(node)
        for key, found in self._bindings.items():
            found.sort(key=lambda b: position(b.node))
            self._places[key] = [position(b.node) for b in found]
        for nodes in (self.calls, self.functions, self.classes, self.loops):
            nodes.sort(key=position)

    def _take(self, node: ast.AST) -> None:
        if isinstance(node, ast.Call):
            self.calls.append(node)
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str) and len(node.value) < 30:
                self.strings.add(node.value)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self._take_import(node)
        elif isinstance(node, (*FUNCTIONS, ast.Lambda)):
            arguments = node.args
            for argument in [
                *arguments.posonlyargs,
                *arguments.args,
                *arguments.kwonlyargs,
                arguments.vararg,
                arguments.kwarg,
            ]:
                if argument is not None:
                    self._bind(node, argument.arg, argument, None, False)
            if not isinstance(node, ast.Lambda):
                self.functions.append(node)
                self._bind(self.scope(node), node.name, node, None, False)
        elif isinstance(node, ast.ClassDef):
            self.classes.append(node)
            self._bind(self.scope(node), node.name, node, None, False)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._take_target(node, target, node.value, True)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
            if node.value is not None:
                self._take_target(node, node.target, node.value, True)
        elif isinstance(node, ast.AugAssign):
            self._take_target(node, node.target, None, False)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self._take_target(node, node.target, node.iter, False)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._take_target(node.context_expr, node.optional_vars, node.context_expr, False)
        if isinstance(node, LOOPS):
            self.loops.append(node)

    def _take_import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import):
                name = alias.asname or alias.name.partition(".")[0]
                self.imports.setdefault(name, alias.name if alias.asname else name)
            elif not node.level and node.module and alias.name != "*":
                self.imports.setdefault(alias.asname or alias.name, f"{node.module}.{alias.name}")

    def _take_target(self, node: ast.AST, target: ast.AST, value: ast.expr | None, whole: bool) -> None:
        if isinstance(target, ast.Name):
            self._bind(self.scope(node), target.id, node, value, whole)
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) and whole else None
            for i, part in enumerate(target.elts):
                if values is not None and len(values) == len(target.elts):
                    self._take_target(node, part, values[i], True)
                else:
                    self._take_target(node, part, value, False)
        elif isinstance(target, ast.Starred):
            self._take_target(node, target.value, value, False)
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
            owner = self.enclosing_class(node)
            if owner is not None:
                self._bind(owner, f"self.{target.attr}", node, value, whole)

    def _bind(self, scope: ast.AST, name: str, node: ast.AST, value: ast.expr | None, whole: bool) -> None:
        self._bindings.setdefault((scope, name), []).append(Binding(node, value, whole))

    def _contains(self, outer: ast.AST, inner: ast.AST) -> bool:
        """Whether `inner` is in the value that an assignment binds: `x` at the right of x = f(x)."""
        if isinstance(outer, (*LOOPS, *FUNCTIONS, ast.ClassDef, ast.arg)):
            return False
        return any(parent is outer for parent in self.above(inner))


def _is_parameter(binding: Binding) -> bool:
    return isinstance(binding.node, ast.arg)


def _is_outside(scope: ast.AST, child: ast.AST) -> bool:
    """Whether a part of a function or class is evaluated outside of it: decorators, defaults, bases."""
    if isinstance(scope, FUNCTIONS):
        return child in scope.decorator_list or child is scope.returns
    if isinstance(scope, ast.ClassDef):
        return child in scope.decorator_list or child in scope.bases
    return False


def _leaves(statement: ast.stmt, kinds: tuple[type[ast.stmt], ...]) -> bool:
    """Whether a statement may skip those after it: `if ...: continue`."""
    if isinstance(statement, ast.If):
        return any(_leaves(s, kinds) for s in [*statement.body, *statement.orelse])
    return isinstance(statement, kinds)
