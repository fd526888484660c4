"""Replaces functions of libraries for a while, whether the libraries are loaded already or only later.

Triton and Inductor have no hooks that report compiling and tuning, or that let others choose; so their methods are
wrapped. This imports nothing: a library that no backend needs must not cost a worker its import time, and Triton
decides at its import whether it interprets.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import ModuleType, TracebackType
from typing import Any

_ABSENT = object()

EVERY_FUNCTION = "*"
"""Instead of an attribute's name: each function that the module itself defines."""


@dataclass(frozen=True)
class Patch:
    """The place of an attribute, and how to replace it.

    module      full name of its module
    owner       name in that module of the class or object that has it; '' for the module itself
    attribute   its name, or EVERY_FUNCTION of a module; nothing is done if an installed version lacks it
    wrap        takes the old value and returns the new one
    """

    module: str
    owner: str
    attribute: str
    wrap: Callable[[Any], Any]


class Patches:
    """Applies patches while its context is open; those of modules not loaded yet apply when the module loads.

    Leaving restores the old values, but not if somebody else replaced ours in the meantime.
    """

    def __init__(self, patches: Iterable[Patch]) -> None:
        self._waiting = list(patches)
        self._placed: list[tuple[Any, str, Any, Any]] = []
        self._finding: set[str] = set()

    def __enter__(self) -> Patches:
        sys.meta_path.insert(0, self)
        self._place_waiting()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.meta_path.remove(self)
        for owner, attribute, previous, ours in reversed(self._placed):
            if getattr(owner, attribute, None) is ours:
                setattr(owner, attribute, previous)
        self._placed, self._waiting = [], []

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """For `import`: returns the spec of a module that has patches, to be applied after it has run; else None."""
        if name in self._finding or all(patch.module != name for patch in self._waiting):
            return None
        self._finding.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._finding.discard(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_place(module: ModuleType) -> None:
                run(module)
                self._place_waiting()

            spec.loader.exec_module = run_and_place  # type: ignore[method-assign]
        return spec

    def _place_waiting(self) -> None:
        self._waiting = [patch for patch in self._waiting if not self._try_place(patch)]

    def _try_place(self, patch: Patch) -> bool:
        module = sys.modules.get(patch.module)
        owner = getattr(module, patch.owner, None) if patch.owner else module
        if owner is None:
            return False
        names = _functions_of(owner) if patch.attribute == EVERY_FUNCTION else [patch.attribute]
        placed = [self._replace_attribute(owner, name, patch.wrap) for name in names]
        return any(placed)

    def _replace_attribute(self, owner: Any, attribute: str, wrap: Callable[[Any], Any]) -> bool:
        previous = getattr(owner, attribute, _ABSENT)
        if previous is _ABSENT:
            return False
        ours = wrap(previous)
        setattr(owner, attribute, ours)
        self._placed.append((owner, attribute, previous, ours))
        return True


def _functions_of(module: Any) -> list[str]:
    """Lists the functions that a module defines itself and does not import."""
    return [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
    ]
