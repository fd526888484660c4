from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from pytest_attnperf.backends import Outputs, Tensors
from pytest_attnperf.correctness.judge import Judge
from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.testing.liars.in_place import CachedRows

MakeJudge = Callable[..., tuple[Judge, Any]]
Views = Mapping[int, Callable[[torch.Tensor], torch.Tensor]]


@dataclass(frozen=True)
class Sizes(CachedRows):
    """The first four rows of the only input become their sizes; `views` says which part that is."""

    views: Views = field(default_factory=dict, hash=False)

    @property
    def in_place(self) -> Views:
        """As given."""
        return self.views

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """8 rows of 16."""
        return (torch.randn(8, 16, generator=torch.Generator().manual_seed(seed)),)

    def reference(self, inputs: Tensors) -> Outputs:
        """In fp64."""
        return self.plain((inputs[0].double(),))

    def plain(self, inputs: Tensors) -> Outputs:
        """Written in place, as a reference may."""
        return {"out": inputs[0][:4].abs_()}


FIRST_ROWS = {0: lambda x: x[:4]}


def sizes(x: torch.Tensor) -> None:
    """As the reference."""
    x[:4].abs_()


def test_a_call_whose_results_are_all_in_place_need_not_return_any(make_judge: MakeJudge) -> None:
    """What it wrote is judged; a reference that writes in place, too, leaves the inputs of the call alone."""
    workload = Sizes(views=FIRST_ROWS)
    judge, prepared = make_judge(workload, sizes, outputs=lambda raw: {})
    assert judge.check_call("check", prepared.run, seed=1, planted=True).problems == ()
    assert judge.compare_repeats(prepared.run, 3).bit_equal
    judge, prepared = make_judge(workload, lambda x: None, outputs=lambda raw: {})
    problem, *_ = judge.check_call("check", prepared.run, seed=1, planted=True).problems
    assert problem.startswith("check: 'out' is off by")


def test_what_is_written_counts_as_a_result_when_bits_are_compared(make_judge: MakeJudge) -> None:
    """A call that returns nothing may still leave other bits every time."""

    def adds(x: torch.Tensor) -> None:
        x[:4] += 1

    judge, prepared = make_judge(Sizes(views=FIRST_ROWS), adds, outputs=lambda raw: {})
    assert not judge.compare_repeats(prepared.run, 2).bit_equal


@pytest.mark.parametrize(
    ("views", "message"),
    [
        ({1: lambda x: x}, r"in_place of cached_rows\S+ names input 1; there are 1, from 0"),
        ({0: lambda x: x[:4].clone()}, r"memory outside input 0, of shape \(8, 16\), .* return a view of the tensor"),
    ],
)
def test_a_workload_may_name_parts_of_its_inputs_only(views: Views, message: str, make_judge: MakeJudge) -> None:
    """Another number, or a copy, is an error of the workload and no verdict on the backend."""
    judge, prepared = make_judge(Sizes(views=views), sizes, outputs=lambda raw: {})
    with pytest.raises(WorkloadError, match=message):
        judge.check_call("check", prepared.run, seed=1, planted=True)


def test_every_input_that_is_written_holds_an_output(make_judge: MakeJudge) -> None:
    """There is nothing to hold the other one against."""

    @dataclass(frozen=True)
    class Two(Sizes):
        def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
            return *super().make_inputs(seed, device, planted=planted), torch.ones(2)

    workload = Two(views={**FIRST_ROWS, 1: lambda x: x})
    judge, prepared = make_judge(workload, lambda x, y: sizes(x), outputs=lambda raw: {})
    with pytest.raises(WorkloadError, match=r"names 2 inputs, but the reference gives only 1 outputs \(out\)"):
        judge.check_call("check", prepared.run, seed=1, planted=True)


@pytest.mark.parametrize(
    ("tensors", "it_is"),
    [
        ((), "missing"),
        ((torch.zeros(8, 16).half(),), r"\(8, 16\) torch.float16"),
        ((torch.zeros(16, 8).mT,), r"\(8, 16\) torch.float32 and not contiguous"),
    ],
)
def test_an_input_that_is_written_is_kept_as_it_is(tensors: Tensors, it_is: str, make_judge: MakeJudge) -> None:
    """The judge has to know where to look; nothing is called."""
    judge, _ = make_judge(Sizes(views=FIRST_ROWS), sizes, outputs=lambda raw: {}, tensors=tensors)
    (problem,) = judge.check_call("check", lambda: pytest.fail("called"), seed=1, planted=True).problems
    assert problem.startswith("check: a call is to write to input 0 in place, so that Prepared.tensors[0] must be as")
    assert problem.partition("it is ")[2] == it_is.replace("\\", "")
