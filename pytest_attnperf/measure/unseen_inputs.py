"""Inputs of a gated function that its result hardly shows: a kernel that leaves one out is right by every comparison.

A branch that is scaled by 1e-5 is below the rounding step of what it is added to. Nothing is wrong with such a kernel
as far as these inputs tell, so that it is said in a note.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pytest_attnperf.correctness.budget import problems
from pytest_attnperf.correctness.metrics import MismatchError, compare
from pytest_attnperf.workloads.adhoc import AdHoc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.correctness.references import Expected, References
    from pytest_attnperf.measure.seeds import Seeds
    from pytest_attnperf.records import Tolerance
    from pytest_attnperf.workloads.base import Workload

QUICK_SECONDS = 0.05
"""Nothing is asked of a reference that takes longer than this for one result."""

REDRAWN = 0x2D5EED
"""Makes the seed of redrawn inputs another than that of a check."""


class Redraws:
    """Redraws one input after the other, and compares what the reference then gives with what it gave.

    references   hold what checks were held against
    tolerance    the backend's
    device       what torch takes
    """

    def __init__(
        self, workload: Workload, seeds: Seeds, *, references: References, tolerance: Tolerance, device: str
    ) -> None:
        self._workload = workload
        self._seeds = seeds
        self._references = references
        self._tolerance = tolerance
        self._device = device

    def unseen(self) -> tuple[str, ...]:
        """Names of the inputs that the reference reads, and that could be others without making a result wrong, neither
        for planted nor for timed inputs; none where it is slow."""
        workload = self._workload
        if not isinstance(workload, AdHoc) or not workload.learned.count:
            return ()
        numbers: tuple[int, ...] = tuple(self._redrawable(workload))
        for seed, planted in ((self._seeds.check, True), (self._seeds.timed, False)):
            if numbers:
                numbers = self._without_effect(workload, numbers, seed, planted=planted)
        return tuple(workload.learned.names[number] for number in numbers)

    def _redrawable(self, workload: AdHoc) -> Iterator[int]:
        """Numbers of floating-point inputs that differ from seed to seed, and that calls only read."""
        known = workload.learned
        for number in range(known.count):
            varies = known.names[number] not in workload.planting.constant
            if known.dtypes[number].is_floating_point and varies and number not in known.overwritten:
                yield number

    def _without_effect(
        self, workload: AdHoc, numbers: tuple[int, ...], seed: int, *, planted: bool
    ) -> tuple[int, ...]:
        """Those of the numbers that change the result by less than its budget, though they change it."""
        inputs = workload.make_inputs(seed, self._device, planted=planted)
        others = workload.make_inputs(seed ^ REDRAWN, self._device, planted=False)
        started = time.perf_counter()
        workload.learned.plain(inputs)
        if time.perf_counter() - started > QUICK_SECONDS:
            return ()
        expected = self._references.get(workload, inputs, seed=seed, planted=planted)
        return tuple(
            number for number in numbers if self._is_within_budget(workload, _with(inputs, number, others), expected)
        )

    def _is_within_budget(self, workload: AdHoc, moved: Tensors, expected: Expected) -> bool:
        got, tolerance = workload.learned.plain(moved), self._tolerance
        with expected.opened() as reference:
            try:
                figures = [
                    compare("", name, got[name], truth, expected.yardsticks[name], tolerance)
                    for name, truth in reference.items()
                ]
            except (KeyError, MismatchError):
                return False
            return not problems(figures) and not _is_same(workload.learned.truth(moved), reference)


def _with(inputs: Tensors, number: int, others: Tensors) -> Tensors:
    return (*inputs[:number], others[number], *inputs[number + 1 :])


def _is_same(outputs: Outputs, reference: Outputs) -> bool:
    """Whether nothing at all has changed: such an input is not read, which is said elsewhere."""
    import torch

    return all(torch.equal(outputs[name].nan_to_num(), truth.nan_to_num()) for name, truth in reference.items())
