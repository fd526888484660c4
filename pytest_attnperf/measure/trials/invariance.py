"""Invariance: rows of the case again, alone, in another order, among more rows, or as a chunk, compared bit by bit.

What a row is and how a problem is taken apart, `workloads.parts` says. A difference makes the case WRONG only if its
backend declares `invariant`; else it is a property of the backend, which reports tell. The case's own results were
proven right before, so they are what parts are compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_attnperf.correctness import poison
from pytest_attnperf.measure.trials import TrialCase, Tried
from pytest_attnperf.records.trials import INVARIANCE, TrialEnding, TrialResult
from pytest_attnperf.workloads.adhoc import AdHoc
from pytest_attnperf.workloads.base import in_place
from pytest_attnperf.workloads.parts import Part, Rows, find_rows, list_parts

if TYPE_CHECKING:
    from pytest_attnperf.backends import Outputs, Prepared, Tensors


@dataclass(frozen=True)
class Whole:
    """Inputs and outputs of the case itself.

    rows   where a function's tensors hold its rows; None for op families, which know
    """

    inputs: Tensors
    outputs: Outputs
    rows: Rows | None


def run_trial(case: TrialCase) -> Iterator[Tried]:
    """Yields one result for each part of the problem, with the largest difference in `ulps`."""
    kept: list[Whole] = []

    def compute() -> Tried:
        kept.append(_compute_whole(case))
        return Tried(TrialResult(INVARIANCE))

    if in_place(case.workload):
        yield _leave_out("", "its calls write to their inputs")
        return
    first = case.attempt(TrialResult(INVARIANCE), compute)
    if not kept:
        yield first
        return
    found = False
    for variant, make in list_parts(case.workload, kept[0].rows):
        result = TrialResult(INVARIANCE, variant)
        tried = case.attempt(result, lambda result=result, make=make: _compare_part(case, kept[0], result, make))  # type: ignore[misc]
        if tried.result.ulps is not None or tried.result.why:
            found = True
            yield tried
    if not found:
        yield _leave_out("", f"family {case.workload.family} does not say what its rows are")


def _leave_out(variant: str, why: str) -> Tried:
    return Tried(TrialResult(INVARIANCE, variant, TrialEnding.LEFT_OUT, why))


def _compute_whole(case: TrialCase) -> Whole:
    """Computes the case's results on the inputs of its planted check. Its own inputs are then the timed ones again.
    Raises WorkloadError for a function whose reference has no rows."""
    workload = case.workload
    inputs = workload.make_inputs(case.prover.seeds.check, case.device, planted=True)
    rows = find_rows(workload.learned.compute_truth, inputs) if isinstance(workload, AdHoc) else None
    return Whole(inputs, _run_on(case, inputs), rows)


def _run_on(case: TrialCase, inputs: Tensors) -> Outputs:
    """Returns copies of the outputs of the case's own call on `inputs`; loads the timed inputs again."""
    import torch

    with torch.no_grad():
        case.prepared.load(inputs)
    try:
        return _copy_outputs(case.prepared)
    finally:
        case.prover.load_timed_inputs(case.prepared)


def _copy_outputs(prepared: Prepared) -> Outputs:
    return {name: tensor.detach().clone() for name, tensor in prepared.outputs(prepared.run()).items()}


def _compare_part(case: TrialCase, whole: Whole, result: TrialResult, make: Callable[[], Part | None]) -> Tried:
    part = make()
    if part is None:
        return Tried(result)
    if reasons := case.backend.unsupported_reasons(part.workload, case.prover.device):
        return _leave_out(result.variant, f"{part.workload.id} is not supported: {reasons[0]}")
    expected = part.outputs(whole.outputs)
    prepared = case.backend.prepare(part.workload, part.inputs(whole.inputs))
    poison.fill_free_blocks((tensor, tensor.dtype) for tensor in expected.values())
    got = _copy_outputs(prepared)
    differences = [
        (difference.ulps, _describe(name, difference, expected[name].numel()))
        for name in expected
        if (difference := _find_difference(got, expected, name)) is not None
    ]
    if not differences:
        return Tried(replace(result, ulps=0.0))
    ulps, told = max(differences)
    again = _run_on(case, whole.inputs)
    if any(_find_difference(again, whole.outputs, name) is not None for name in expected):
        told += "; two calls of the whole on the same inputs differ, too"
    if not case.backend.invariant:
        return Tried(replace(result, ulps=ulps, why=told))
    why = f"{result.name}: {told}; its backend declares invariant=True, which promises the same bits"
    return Tried(replace(result, ending=TrialEnding.WRONG, ulps=ulps, why=why))


def _find_difference(got: Outputs, expected: Outputs, name: str) -> poison.BitDifference | None:
    one, other = got.get(name), expected[name]
    if one is None or one.shape != other.shape or one.dtype != other.dtype:
        return poison.BitDifference(float("inf"), (), other.numel())
    return poison.find_bit_difference(one, other)


def _describe(name: str, difference: poison.BitDifference, elements: int) -> str:
    place = f", most at [{', '.join(map(str, difference.index))}]" if difference.index else ""
    return (
        f"{name!r} is not what all rows together gave: {difference.count} of {elements} elements have other bits, by "
        f"up to {difference.ulps:g} ulp{place}"
    )
