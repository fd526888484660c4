"""Whether one call of a backend is right: fresh inputs, poisoned outputs, measured budgets, inputs unchanged.

The judge never knows how the call is made. An eager call and the replay of a captured graph are checked by the same
function, so that what is timed is what was proven.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_attnperf.backends import Prepared
from pytest_attnperf.correctness import poison
from pytest_attnperf.correctness.budget import problems
from pytest_attnperf.correctness.metrics import MismatchError, compare
from pytest_attnperf.correctness.references import Expected, References
from pytest_attnperf.records import CheckReport, ErrorFigures, Tolerance

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.workloads.base import Workload


class Judge:
    """Judges the calls of one prepared backend on one workload.

    references   shared by all judges of a process
    tolerance    the backend's
    device       what torch takes: 'cuda' or 'cpu'
    """

    def __init__(
        self, prepared: Prepared, workload: Workload, *, references: References, tolerance: Tolerance, device: str
    ) -> None:
        self._prepared = prepared
        self._workload = workload
        self._references = references
        self._tolerance = tolerance
        self._device = device
        self._returned: list[torch.Tensor] = []

    def watch(self, raw: Any) -> None:
        """Remember what some call returned, e.g. a graph's static outputs: it is filled with NaN before a check."""
        self._returned += [tensor for tensor in poison.tensors_in(raw) if not self._is_input(tensor)]

    def check_call(self, check: str, run: Callable[[], Any], *, seed: int, planted: bool) -> CheckReport:
        """Load the inputs of `seed` in place, poison, call `run` once, and compare what it returned.

        check    what is being checked, in words that start every problem: 'timed inputs', 'last replay'
        run      returns what `prepared.call` returns, computed from `prepared.tensors`

        The inputs of `seed` stay loaded. Whatever `run` or the backend's own conversions raise is passed on, and so is
        BadReferenceError; everything found wrong with the result is a problem of the report.
        """
        started = time.perf_counter()
        inputs = self._workload.make_inputs(seed, self._device, planted=planted)
        expected = self._references.get(self._workload, inputs, seed=seed, planted=planted)
        loaded = self._load(inputs)
        self._poison(expected)
        raw = run()
        found, outputs = self._outputs(check, raw, expected)
        figures, mismatches = self._compare(check, outputs, expected)
        found += mismatches + self._changed_inputs(check, loaded)
        self._returned = []
        self.watch(raw)
        return CheckReport(
            figures=tuple(figures),
            problems=tuple(found) + problems(figures),
            tolerance=self._tolerance,
            seconds=time.perf_counter() - started,
        )

    def _load(self, inputs: Tensors) -> Tensors:
        """Put canonical inputs into the backend's memory; returns copies the backend has never seen."""
        import torch

        with torch.no_grad():
            self._prepared.load(inputs)
            return tuple(tensor.clone() for tensor in self._prepared.tensors)

    def _poison(self, expected: Expected) -> None:
        for tensor in self._returned:
            poison.fill(tensor)
        poison.fill_free_blocks(
            (tensor, expected.yardsticks[name].dtype) for name, tensor in expected.reference.items()
        )

    def _outputs(self, check: str, raw: Any, expected: Expected) -> tuple[list[str], Outputs]:
        """(problems, the outputs that can be compared)."""
        import torch

        found: list[str] = []
        if any(self._is_input(tensor) for tensor in poison.tensors_in(raw)):
            found.append(f"{check}: the result lies in the memory of an input; a result must be memory of its own")
        converted = self._prepared.outputs(raw)
        usable: Outputs = {}
        for name in expected.reference:
            output = converted.get(name)
            if type(output) is torch.Tensor:
                usable[name] = output
            elif output is None:
                gave = ", ".join(sorted(converted)) or "nothing"
                found.append(f"{check}: output {name!r} is missing; the backend gave {gave}")
            else:
                kind = f"{type(output).__module__}.{type(output).__qualname__}"
                found.append(f"{check}: output {name!r} is a {kind}, not a plain torch.Tensor")
        for name, output in usable.items():
            if any(poison.overlap(output, tensor) for tensor in expected.reference.values()):
                found.append(f"{check}: output {name!r} is the judge's own memory, not a result")
        return found, usable

    def _compare(self, check: str, outputs: Outputs, expected: Expected) -> tuple[list[ErrorFigures], list[str]]:
        figures: list[ErrorFigures] = []
        found: list[str] = []
        for name, output in outputs.items():
            result = self._figures(check, name, output, expected)
            if isinstance(result, ErrorFigures):
                figures.append(result)
            else:
                found.append(f"{check}: {result}")
        return figures, found

    def _figures(self, check: str, name: str, output: torch.Tensor, expected: Expected) -> ErrorFigures | MismatchError:
        try:
            return compare(check, name, output, expected.reference[name], expected.yardsticks[name], self._tolerance)
        except MismatchError as error:
            return error

    def _changed_inputs(self, check: str, loaded: Tensors) -> list[str]:
        return [
            f"{check}: the call changed its inputs: tensor {number} of {len(loaded)}, shape {tuple(before.shape)}, is "
            "not what it was before the call"
            for number, (before, after) in enumerate(zip(loaded, self._prepared.tensors, strict=True))
            if not poison.bit_equal(before, after)
        ]

    def _is_input(self, tensor: torch.Tensor) -> bool:
        return any(poison.overlap(tensor, own) for own in self._prepared.tensors)
