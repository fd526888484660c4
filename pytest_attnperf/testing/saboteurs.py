"""Backends that lie or dawdle on purpose, around an honest one: what a gate must catch.

    registry.replace(Slowed(registry.get("triton.flash"), every=10))

`Slowed` is slower by a known amount: every n-th call runs twice. In a block of 100 calls `every=100` is exactly 1 %,
where an added sleep kernel would cost a launch as well. The others return what a broken kernel returns.
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
    """A backend under the name of another: same limits, another call. Subclasses say how `sabotage` changes it."""

    def prepare(self, workload: Workload, inputs: Tensors) -> Prepared:
        """The honest preparation with its call sabotaged; the configuration says so."""
        prepared = self.backend.prepare(workload, inputs)
        config = {**prepared.config, "sabotage": type(self).__name__}
        return replace(prepared, call=self.sabotage(prepared.call), config=config)

    def sabotage(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call that runs instead."""
        raise AssertionError(f"{type(self).__name__} does not say what it sabotages")


@dataclass(frozen=True)
class Slowed(Sabotaged):
    """Every `every`-th call runs twice: slower by 1/every of the kernel's own time, and right."""

    every: int = 10

    def sabotage(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Count calls; the count is taken at capture, so a graph holds the extra calls too."""
        counter = itertools.count(1)

        def call_slowed(*tensors: Any) -> Any:
            if next(counter) % self.every == 0:
                call(*tensors)
            return call(*tensors)

        return call_slowed


@dataclass(frozen=True)
class WrongValue(Sabotaged):
    """One query row of the output is too large by an eighth."""

    def sabotage(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Scale the first element of every dimension but the last."""

        def call_wrong(*tensors: Any) -> Any:
            returned = call(*tensors)
            _first_output(returned).select(0, 0).select(0, 0).select(0, 0).mul_(1.125)
            return returned

        return call_wrong


@dataclass(frozen=True)
class WritesNaN(Sabotaged):
    """One query row of the output is NaN."""

    def sabotage(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Overwrite the first row."""

        def call_poisoned(*tensors: Any) -> Any:
            returned = call(*tensors)
            _first_output(returned).select(0, 0).select(0, 0).select(0, 0).fill_(float("nan"))
            return returned

        return call_poisoned


@dataclass(frozen=True)
class WritesNothing(Sabotaged):
    """The output is allocated and never written: what a kernel whose body was compiled out leaves."""

    def sabotage(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Allocate what the honest call would return, after learning its shapes once."""
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
    """The output tensor of a call that may return (out, lse)."""
    return returned[0] if isinstance(returned, tuple) else returned
