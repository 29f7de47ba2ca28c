"""Tells of everything that a program compiles with tf.function, jax.jit or torch.compile, from its first import on."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable, List, Tuple

#: Called with what the compiler has made, of what, and in which line it was called. What it returns takes its place.
Watch = Callable[[Any, Any, str], Any]

_COMPILERS = {"tensorflow": "function", "jax": "jit", "torch": "compile"}
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")})
_TRAINERS = (
    "keras",
    "lightning",
    "pytorch_lightning",
    "accelerate",
    "transformers",
)  #: compile what is the user's


@contextlib.contextmanager
def intercepted(watch: Watch) -> Iterator[None]:
    """While it lasts. Frameworks are looked for as they are imported, and none is that the program does not use."""
    finder = _Finder(watch)
    for name in _COMPILERS:
        if name in sys.modules:
            finder.replace(name, sys.modules[name])
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for module, name, original in finder.replaced:
            setattr(module, name, original)


class _Finder:
    """Finds what the other finders find."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.replaced: List[Tuple[ModuleType, str, Any]] = []

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in _COMPILERS:
            return None
        others = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                self.replace(name, module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def replace(self, name: str, module: ModuleType) -> None:
        attribute = _COMPILERS[name]
        original = getattr(module, attribute)
        self.replaced.append((module, attribute, original))
        setattr(module, attribute, _telling(original, self._watch))


def _telling(original: Callable[..., Any], watch: Watch) -> Callable[..., Any]:
    @functools.wraps(original)
    def compiler(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1)
        file, place = caller.f_code.co_filename, f"{caller.f_code.co_filename}:{caller.f_lineno}"
        package = str(caller.f_globals.get("__name__", "")).split(".")[0]
        made = original(*args, **kwargs)

        def told(made: Any, function: Any) -> Any:
            if package not in _TRAINERS and file.startswith(_LIBRARIES) and _file_of(function).startswith(_LIBRARIES):
                return made  # a library's own affair
            return watch(made, function, place)

        given = args[0] if args else next((kwargs[name] for name in ("func", "fun", "model") if name in kwargs), None)
        return told(made, given) if given is not None else lambda function: told(made(function), function)

    return compiler


def _file_of(function: Any) -> str:
    try:
        function = inspect.unwrap(function)
        return inspect.getfile(function if inspect.isroutine(function) else type(function))
    except (TypeError, ValueError, OSError):
        return ""
