from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_attnperf.workloads.adhoc import AdHoc
from pytest_attnperf.workloads.adhoc_planting import Once


def rows(dtype: torch.dtype, scale: float = 1.0) -> Any:
    """Makes x (64, 100)."""
    return lambda: (torch.randn(64, 100) * scale).to(dtype)


def amplitude(workload: AdHoc) -> float:
    """How large the planted elements of a problem are."""
    workload.make_inputs(1, "cpu", planted=True)
    (found,) = workload.planting._amplitudes.values()
    return found


@pytest.mark.parametrize(
    ("reference", "inputs", "expected"),
    [
        (lambda x: torch.softmax(x, -1), rows(torch.bfloat16), 64.0),
        (lambda x: x * x, rows(torch.float16, scale=3.0), 16.0),
        (lambda x: x * x, rows(torch.float16, scale=8.0), 4.0),
        (lambda x: x.square() * x.square(), rows(torch.float16, scale=8.0), 0.0),
    ],
    ids=["softmax", "square", "square of larger", "fourth power"],
)
def test_planted_elements_are_as_large_as_the_problem_bears(reference: Any, inputs: Any, expected: float) -> None:
    """f16 holds no more than 65,504: what overflows is planted less, and not at all where the least is too much."""
    torch.manual_seed(0)
    assert amplitude(AdHoc("x", inputs, reference)) == expected


def test_a_problem_that_is_not_planted_says_why() -> None:
    """Nothing to plant in, an input that may follow from others, and too large a result, each in words."""
    reasons = {
        "free numbers": AdHoc("x", lambda: torch.rand(64, 100), lambda x: x * 2),
        "does not read 'lse'": AdHoc("x", lambda: (torch.randn(64, 100), torch.randn(64)), lambda x, lse: x * 2),
        "overflows": AdHoc("x", rows(torch.float16, 8.0), lambda x: x.square() * x.square()),
    }
    for says, workload in reasons.items():
        inputs = workload.make_inputs(1, "cpu", planted=True)
        assert says in workload.unplanted
        assert all(map(torch.equal, inputs, workload.make_inputs(1, "cpu", planted=False)))


def test_inputs_that_are_left_out_are_named() -> None:
    """Where some inputs are planted, a bounded one beside them is named in a note; none is where all are planted."""

    def make(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        draw = torch.Generator().manual_seed(seed)
        return torch.randn(64, 100, generator=draw), torch.randint(0, 2, (64, 100), generator=draw) * 2.0 - 1

    workload = AdHoc("x", make, lambda x, signs: x * signs)
    for seed in (1, 2):
        workload.make_inputs(seed, "cpu", planted=True)
    assert workload.unplanted == ""
    (note,) = workload.input_notes
    assert note.startswith("'signs' has no planted elements")
    whole = AdHoc("x", lambda seed: make(seed)[0], lambda x: x * 2)
    for seed in (1, 2):
        whole.make_inputs(seed, "cpu", planted=True)
    assert whole.input_notes == ()


def test_an_input_that_is_only_written_to_does_not_hinder() -> None:
    """An output buffer is read by no reference; named in in_place it follows from nothing."""
    workload = AdHoc(
        "x", lambda: (torch.randn(64, 100), torch.randn(64, 100)), lambda x, out: x * 2, overwrites=("out",)
    )
    planted = workload.make_inputs(1, "cpu", planted=True)
    assert workload.unplanted == ""
    assert planted[0].abs().max() > 30


def test_inputs_of_who_knows_better() -> None:
    """A function with a parameter `planted` plants by itself, whatever the tensors look like."""

    def make(seed: int, planted: bool) -> torch.Tensor:
        return torch.full((64, 100), float(seed)) * (-1 if planted else 1)

    workload = AdHoc("x", make, lambda x: x * 2)
    assert workload.make_inputs(3, "cpu", planted=False)[0].unique().tolist() == [3.0]
    assert workload.make_inputs(3, "cpu", planted=True)[0].unique().tolist() == [-3.0]
    assert workload.unplanted == ""


def test_results_of_planted_inputs_are_handed_out_once() -> None:
    """A reference that was run to see what is borne is not run again, and nothing stays for a backend to find."""
    once, inputs = Once(), (torch.ones(1),)
    once.keep(inputs, {"out": inputs[0]})
    assert once.take((torch.ones(1),)) == {}
    once.keep(inputs, {"out": inputs[0]})
    assert list(once.take(inputs)) == ["out"]
    assert once.take(inputs) == {}
