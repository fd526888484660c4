"""The truth for a workload and seed, and how far plain arithmetic is from it; shared by all backends of a process."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_attnperf.correctness.metrics import MismatchError, Yardstick, measure
from pytest_attnperf.errors import AttnperfError

if TYPE_CHECKING:
    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.workloads.base import Workload


class BadReferenceError(AttnperfError):
    """A reference that every output, or none, would agree with: a check that cannot fail is no check."""


ELEMENTS_MIN = 16384
DRAWS_MAX = 64
"""A yardstick is the largest error over at least so many elements, or so many draws of a smaller problem. The largest
of a few rounding errors is a matter of luck: over one draw of 500 elements, honest kernels exceed it in 1 of 100."""
HELD_MAX = 4
"""Expected outputs held at once: of the timed inputs, and of a few check seeds."""
EXTRA_FLOPS_MAX = 2e8
"""Useful operations the draws beyond the first may cost together, where the workload can say."""


@dataclass(frozen=True)
class Expected:
    """`reference` in fp32 or fp64, and the yardstick of each output, by output name."""

    reference: Outputs
    yardsticks: dict[str, Yardstick]


class References:
    """Expected outputs by (workload, seed, planted, device); holds the last few of the most recent workload only.

    Cases run in canonical order, all backends of a workload in a row, so that little is enough, and memory is bounded.
    """

    def __init__(self) -> None:
        self._workload: Workload | None = None
        self._expected: dict[tuple[int, bool, str], Expected] = {}

    def get(self, workload: Workload, inputs: Tensors, *, seed: int, planted: bool) -> Expected:
        """What `inputs`, made by `workload.make_inputs(seed, ..., planted=planted)`, must give.

        Raises BadReferenceError when the reference is empty, not finite or constant, or names other outputs than the
        plain computation.
        """
        if workload != self._workload:
            self._workload, self._expected = workload, {}
        key = (seed, planted, str(inputs[0].device) if inputs else "")
        found = self._expected.pop(key, None) or _expected(workload, inputs, seed, planted)
        self._expected[key] = found  # at the end: the first is the one unused for longest
        while len(self._expected) > HELD_MAX:
            del self._expected[next(iter(self._expected))]
        return found

    def clear(self) -> None:
        """Free everything held."""
        self._workload, self._expected = None, {}


def _expected(workload: Workload, inputs: Tensors, seed: int, planted: bool) -> Expected:
    reference, yardsticks = _draw(workload, inputs)
    device = str(inputs[0].device) if inputs else "cpu"
    smallest = min(tensor.numel() for tensor in reference.values())
    for draw in range(1, draws(smallest, workload.flops)):
        _, more = _draw(workload, workload.make_inputs(seed + draw, device, planted=planted))
        yardsticks = {name: yardsticks[name].joined(more[name]) for name in yardsticks}
    return Expected(reference, yardsticks)


def draws(elements: int, flops: float | None) -> int:
    """How many draws of a problem its yardstick is measured over; 1 for all but small ones."""
    wanted = min(DRAWS_MAX, math.ceil(ELEMENTS_MIN / elements))
    affordable = wanted if not flops else 1 + int(EXTRA_FLOPS_MAX / flops)
    return min(wanted, affordable)


def _draw(workload: Workload, inputs: Tensors) -> tuple[Outputs, dict[str, Yardstick]]:
    reference, plain = workload.reference(inputs), workload.plain(inputs)
    if not reference or reference.keys() != plain.keys():
        raise BadReferenceError(
            f"{workload.id}: the reference gives {sorted(reference)}, the plain computation {sorted(plain)}; both "
            "must give the same outputs, at least one"
        )
    try:
        yardsticks = {name: measure(name, reference[name], plain[name]) for name in reference}
    except MismatchError as error:
        raise BadReferenceError(f"{workload.id}: {error}") from error
    for name, tensor in reference.items():
        if tensor.numel() > 1 and bool((tensor == tensor.flatten()[0]).all()):
            raise BadReferenceError(
                f"{workload.id}: the reference of {name!r} is constant ({float(tensor.flatten()[0]):.6g} everywhere): "
                "many wrong results would agree with it; use inputs that give different elements"
            )
    return reference, yardsticks
