"""Backends that are wrong or slow on purpose, around an honest one: a gate must detect them.

    registry.replace(Slowed(registry.get("triton.flash"), every=10))

`Slowed` is slower by a known amount: every n-th call runs twice. In a block of 100 calls `every=100` is exactly 1 %; an
added sleep kernel would also cost a launch. The others return what a broken kernel returns.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pytest_attnperf.backends import Around, Prepared, Tensors
from pytest_attnperf.workloads.base import Workload


@dataclass(frozen=True)
class Sabotaged(Around):
    """A backend under another's name, with the same limits but another call. Subclasses define `sabotage`."""

    def prepare(self, workload: Workload, inputs: Tensors) -> Prepared:
        """Prepares the honest backend, replaces its call by what `sabotage` returns for it, and stores the class's name
        as 'sabotage' in the config."""
        prepared = self.backend.prepare(workload, inputs)
        config = {**prepared.config, "sabotage": type(self).__name__}
        return replace(prepared, call=self.sabotage(prepared.call), config=config)

    def sabotage(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the wrong or slow call to run in place of the honest `call`. Every subclass overrides it: this one
        raises AssertionError."""
        raise AssertionError(f"{type(self).__name__} does not say what it sabotages: override sabotage()")


@dataclass(frozen=True)
class Slowed(Sabotaged):
    """Runs every `every`-th call twice: slower by 1/every of the kernel's own time, but right."""

    every: int = 10

    def sabotage(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a call that runs `call` twice every `every`-th time. It counts at capture, so a graph contains the
        extra calls, too."""
        counter = itertools.count(1)

        def call_slowed(*tensors: Any) -> Any:
            if next(counter) % self.every == 0:
                call(*tensors)
            return call(*tensors)

        return call_slowed


@dataclass(frozen=True)
class WrongValue(Sabotaged):
    """Makes one query row of the output too large by an eighth."""

    def sabotage(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a call whose output is 1.125 times as large in the row at index 0 of the first three dimensions."""

        def call_wrong(*tensors: Any) -> Any:
            returned = call(*tensors)
            _first_output(returned).select(0, 0).select(0, 0).select(0, 0).mul_(1.125)
            return returned

        return call_wrong


@dataclass(frozen=True)
class WritesNaN(Sabotaged):
    """Fills one query row of the output with NaN."""

    def sabotage(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a call whose output is NaN in the row at index 0 of the first three dimensions."""

        def call_poisoned(*tensors: Any) -> Any:
            returned = call(*tensors)
            _first_output(returned).select(0, 0).select(0, 0).select(0, 0).fill_(float("nan"))
            return returned

        return call_poisoned


@dataclass(frozen=True)
class WritesNothing(Sabotaged):
    """Allocates the output and never writes it, like a kernel whose body was optimised away."""

    def sabotage(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a call that only allocates outputs, with the shapes of the honest `call`, which runs once to learn
        them."""
        learnt: list[Any] = []

        def call_nothing(*tensors: Any) -> Any:
            if not learnt:
                learnt.append(call(*tensors))
            honest = learnt[0]
            if isinstance(honest, tuple):
                return tuple(tensor.new_empty(tensor.shape) for tensor in honest)
            return honest.new_empty(honest.shape)

        return call_nothing


def _first_output(returned: Any) -> Any:
    """Returns what a call returned, or its first element, the output, if that is a tuple such as (out, lse)."""
    return returned[0] if isinstance(returned, tuple) else returned
