"""A file in the hands of the checks: its module, what it compiles, its steps, and questions that several checks ask."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from .compiled import CompiledFunctions
from .module import FUNCTIONS, LOOPS, Module, called_name, constant, method
from .pipelines import loader_argument, sources
from .steps import StepBody, find_steps


@dataclass
class Found:
    """A rule and the node that breaks it; the rest is the rule's own where it is None."""

    node: ast.expr
    rule: str
    message: str
    level: str | None = None
    instead: str | None = None


class File:
    def __init__(self, text: str) -> None:
        self.module = Module(text)
        self.compiled = CompiledFunctions(self.module)
        self.steps: list[StepBody] = find_steps(self.module, self.compiled)
        self._step_of: dict[ast.AST, StepBody] = {s.node: s for s in self.steps if s.trains}

    def step_of(self, node: ast.AST) -> StepBody | None:
        """The innermost training step that a node runs in."""
        for parent in self.module.above(node):
            if parent in self._step_of:
                return self._step_of[parent]
            if isinstance(parent, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
                break
        return None

    def has_device(self) -> bool:
        """Whether anything is put on a device by name."""
        return (
            self.has_cuda()
            or any(method(c) == "to" and "device" in "".join(ast.unparse(a) for a in c.args) for c in self.module.calls)
            or self.module.uses("lightning", "pytorch_lightning", "accelerate", "torch_xla")
        )

    def has_cuda(self) -> bool:
        if any(s == "cuda" or s.startswith("cuda:") for s in self.module.strings):
            return True
        return any(method(c) == "cuda" for c in self.module.calls)

    def consumed(self) -> Iterator[tuple[str, ast.expr]]:
        """What training takes its batches from: (how, expression) of each training loop and of model.fit(...)."""
        for step in self.steps:
            if step.trains:
                for source in step.sources:
                    yield f"the loop in line {step.node.lineno}", source
        for call in self.module.calls:
            if (
                method(call) == "fit"
                and call.args
                and self.module.uses("tensorflow", "keras", "lightning", "pytorch_lightning")
            ):
                arguments = [*call.args, *(k.value for k in call.keywords if k.arg in ("train_dataloaders", "x"))]
                for argument in arguments[:2]:
                    yield f"fit in line {call.lineno}", argument

    def trains_with(self, loader: ast.Call) -> bool:
        """Whether a DataLoader feeds training: it shuffles, or a training loop goes over it."""
        if constant(loader_argument(loader, "shuffle")) is True:
            return True
        return any(self.module.follow(expression) is loader for _, expression in self.consumed())

    def has_epochs(self, loader: ast.Call) -> bool:
        """Whether a loop goes over a loader again and again, inside of another loop."""
        for loop in self.module.loops:
            if isinstance(loop, ast.While):
                continue
            if any(self.module.follow(s) is loader for s in sources(self.module, loop.iter)):
                scope = self.module.scope(loop)
                for parent in self.module.above(loop):
                    if isinstance(parent, LOOPS) and not isinstance(parent, ast.While):
                        return not any(n is loader for n in ast.walk(parent))
                    if parent is scope:
                        break
        for call in self.module.calls:  # for epoch in range(9): train(model, loader)
            given = [*call.args, *(k.value for k in call.keywords)]
            if called_name(call) and any(isinstance(a, ast.Name) and self.module.follow(a) is loader for a in given):
                for parent in self.module.above(call):
                    if isinstance(parent, (ast.For, ast.AsyncFor)) and "epoch" in ast.unparse(parent.target):
                        return not any(n is loader for n in ast.walk(parent))
        return False
