from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from pytest_attnperf.correctness import metrics
from pytest_attnperf.correctness.lines import Lines, measure_lines
from pytest_attnperf.correctness.references import (
    HELD_MAX,
    BadReferenceError,
    Expected,
    References,
    count_draws,
    estimate_spread,
)
from pytest_attnperf.workloads.adhoc import AdHoc
from pytest_attnperf.workloads.softmax import Softmax


def make_inputs(seed: int) -> torch.Tensor:
    """x (512, 128) in f16: large enough to be drawn once."""
    return torch.randn(512, 128, generator=torch.Generator().manual_seed(seed)).half()


class Counting:
    """A reference function that counts how often it ran."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """softmax(x), counted."""
        self.calls += 1
        return torch.softmax(x, -1)


def expected(references: References, workload: AdHoc | Softmax, seed: int, planted: bool = False) -> Expected:
    """What the store answers for inputs of this seed."""
    return references.compute_expected(
        workload, workload.make_inputs(seed, "cpu", planted=planted), seed=seed, planted=planted
    )


def test_a_reference_is_computed_once_per_workload_seed_and_planting() -> None:
    """The second backend of a workload costs no reference; another seed, planting or workload does."""
    function, references = Counting(), References()
    workload, other = AdHoc("a", make_inputs, function), AdHoc("b", make_inputs, function)
    first = expected(references, workload, 1)
    assert expected(references, workload, 1) is first
    assert function.calls == 5  # the truth, the plain computation, and three that are rounded in between
    for arguments in ((workload, 2, False), (workload, 1, True), (other, 1, False)):
        before = function.calls
        expected(references, *arguments)
        assert function.calls >= before + 2


def test_only_the_last_few_of_one_workload_are_held() -> None:
    """Memory is bounded: the longest unused goes first, and a new workload frees everything of the old one."""
    function, references = Counting(), References()
    workload = AdHoc("a", make_inputs, function)
    timed = expected(references, workload, 0)
    for seed in range(1, 2 * HELD_MAX):
        expected(references, workload, seed)
        assert expected(references, workload, 0) is timed
    before = function.calls
    expected(references, workload, 1)
    assert function.calls == before + 5
    expected(references, AdHoc("b", make_inputs, function), 0)
    assert expected(references, workload, 0) is not timed


def test_memory_of_references_is_limited() -> None:
    """Those unused for longest are freed until the rest fits; a limit that they meet frees none."""
    function, references = Counting(), References()
    workload = AdHoc("a", make_inputs, function)
    first = expected(references, workload, 0)
    expected(references, workload, 1)
    references.limit_memory(2 * first.count_bytes())
    assert expected(references, workload, 0) is first
    references.limit_memory(first.count_bytes())
    calls = function.calls
    assert expected(references, workload, 0) is first
    expected(references, workload, 1)
    assert function.calls > calls
    references.limit_memory(0)
    assert expected(references, workload, 0) is not first


@pytest.mark.parametrize(
    ("elements", "flops", "expected_draws"),
    [(65536, 1.0, 1), (32768, 1.0, 2), (8, 1.0, 64), (8, None, 64), (8, 8e7, 3), (8, 2e9, 1), (1 << 24, 1e13, 1)],
)
def test_small_problems_are_drawn_more_often(elements: int, flops: float | None, expected_draws: int) -> None:
    """A yardstick over few elements is measured over more draws, as far as their work allows."""
    assert count_draws(elements, flops) == expected_draws


def test_a_small_problems_yardstick_is_the_largest_of_its_draws() -> None:
    """Four elements are measured over 64 draws, so the error is at least that of any single draw."""
    workload = AdHoc("a", lambda seed: make_inputs(seed)[0, :4], lambda x: torch.softmax(x, -1))
    joined = expected(References(), workload, 1).yardsticks["out"]
    singles = []
    for seed in range(1, 65):
        inputs = workload.make_inputs(seed, "cpu", planted=False)
        difference = workload.plain(inputs)["out"].double() - workload.reference(inputs)["out"]
        singles.append(float(difference.abs().max()))
    assert joined.max_error >= max(singles) * estimate_spread(4 * 64) > singles[0]


def test_lines_are_measured_in_the_first_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two draws, only the judged inputs have their lines measured, plainly and with three roundings in between: what
    lines of the other draw are off by would be used by nobody."""
    measured: list[torch.Tensor] = []

    def noted(plain: torch.Tensor, reference: torch.Tensor) -> Lines:
        measured.append(reference)
        return measure_lines(plain, reference)

    monkeypatch.setattr(metrics, "measure_lines", noted)
    workload = AdHoc("a", lambda seed: make_inputs(seed)[:256], lambda x: torch.softmax(x, -1))
    found = expected(References(), workload, 1)
    truth = workload.reference(workload.make_inputs(1, "cpu", planted=False))["out"]
    assert [bool((reference == truth).all()) for reference in measured] == [True] * 4
    assert found.yardsticks["out"].lines.keys() == {"axis 0", "axis 1"}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            torch.zeros_like,
            "adhoc-a: the reference of 'out' is constant (0 everywhere): many wrong results would agree",
        ),
        (lambda x: x / 0, "adhoc-a: the reference of 'out' holds NaN or Inf"),
        (lambda x: x[:0], "adhoc-a: the reference of 'out' has no elements (shape (0, 128))"),
        (
            lambda x: {"out": x} if x.dtype == torch.float64 else {"out": x, "lse": x},
            "the reference gives ['out'], the plain computation ['lse', 'out']",
        ),
        (lambda x: x if x.dtype == torch.float64 else x * 1e6, "the plain computation of 'out' holds NaN or Inf"),
    ],
)
def test_a_check_that_cannot_fail_is_refused(function: Any, message: str) -> None:
    """A reference that many results agree with, or that no error can be measured against, is refused as such."""
    with pytest.raises(BadReferenceError, match=re.escape(message)):
        expected(References(), AdHoc("a", make_inputs, function), 1)


@pytest.mark.parametrize("method", ["reference", "plain"])
def test_outputs_without_names_are_refused(method: str) -> None:
    """A tensor in place of outputs by name is said with the method that returned it."""

    class Unnamed(Softmax):
        """One of its two computations returns the tensor alone."""

    setattr(Unnamed, method, lambda self, inputs: torch.softmax(inputs[0], -1))
    said = f"softmax-r4-c8-f32: {method}() returned Tensor; return e.g. {{'out': tensor}}"
    with pytest.raises(BadReferenceError, match=re.escape(said)):
        expected(References(), Unnamed(4, 8, "f32"), 1)


def lse_like(x: torch.Tensor) -> torch.Tensor:
    """A row sum of x (512, 128) in which every fourth row sees nothing: shape (512,), -inf there."""
    return x.float().sum(-1).masked_fill(torch.arange(512) % 4 == 0, float("-inf")).to(x.dtype)


def test_announced_inf_is_part_of_the_truth() -> None:
    """An output named in `non_finite_outputs` may hold -inf; its yardstick is over the finite elements."""
    workload = AdHoc("a", make_inputs, lse_like, non_finite_outputs=frozenset({"out"}))
    found = expected(References(), workload, 1)
    assert int(found.reference["out"].isneginf().sum()) == 128
    assert 0 < found.yardsticks["out"].max_error < 0.1


def test_inf_that_nobody_announced_is_refused() -> None:
    """Without the name, or with the name of another output, Inf in the reference is a fault of the workload."""
    for names in (frozenset(), frozenset({"lse"})):
        workload = AdHoc("a", make_inputs, lse_like, non_finite_outputs=names)
        with pytest.raises(BadReferenceError, match=r"the reference of 'out' holds NaN or Inf.*`non_finite_outputs`"):
            expected(References(), workload, 1)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda x: torch.where(lse_like(x).isinf(), lse_like(x), torch.full((), 2.5, dtype=x.dtype)),
            "the reference of 'out' is constant (2.5 everywhere)",
        ),
        (lambda x: x / 0, "the reference of 'out' holds no finite element among 65536"),
        (
            lambda x: lse_like(x) if x.dtype == torch.float64 else -lse_like(x),
            "128 of 512 elements differ, first at (0,): inf against -inf",
        ),
    ],
)
def test_a_pattern_that_proves_nothing_is_refused(function: Any, message: str) -> None:
    """Finite elements that are all alike or absent, or another pattern in the plain computation, allow no check."""
    workload = AdHoc("a", make_inputs, function, non_finite_outputs=frozenset({"out"}))
    with pytest.raises(BadReferenceError, match=re.escape(message)):
        expected(References(), workload, 1)


class TakesGradients(AdHoc):
    """A workload whose reference hangs on a graph."""

    def reference(self, inputs: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        """softmax(x), with a graph."""
        return {"out": torch.softmax(inputs[0].double().requires_grad_(), -1)}

    def plain(self, inputs: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        """softmax(x) in x's type, with a graph."""
        return {"out": torch.softmax(inputs[0].clone().requires_grad_(), -1)}


def test_a_reference_is_kept_without_its_graph() -> None:
    """What took gradients is measured and kept detached."""
    found = expected(References(), TakesGradients("a", make_inputs, torch.relu), 1)
    assert not found.reference["out"].requires_grad
    assert found.yardsticks["out"].max_error > 0


def test_a_reference_is_unreadable_while_nobody_compares() -> None:
    """What lies in memory is noise; opened it is the truth, bit for bit, and closed it is noise again."""
    workload = AdHoc("a", make_inputs, lambda x: torch.softmax(x, -1))
    found = expected(References(), workload, 1)
    truth = workload.reference((make_inputs(1),))["out"]
    (sealed,) = found.sealed.values()
    assert not bool((sealed == truth).any())
    with found.reveal() as readable:
        assert torch.equal(readable["out"], truth)
        assert readable["out"] is sealed
    assert not bool((sealed == truth).any())
    assert torch.equal(found.reference["out"], truth)


def test_memory_of_a_held_reference_is_recognised() -> None:
    """A view into it is the store's memory, a copy is not."""
    references = References()
    found = expected(references, AdHoc("a", make_inputs, lambda x: torch.softmax(x, -1)), 1)
    assert references.has_memory_of(found.sealed["out"][3:5])
    assert not references.has_memory_of(found.reference["out"])


def test_a_reference_that_lives_elsewhere_is_left_alone() -> None:
    """A function that keeps what it returned finds it unchanged."""
    kept: dict[torch.dtype, torch.Tensor] = {}

    def remembering(x: torch.Tensor) -> torch.Tensor:
        return kept.setdefault(x.dtype, torch.softmax(x, -1))

    found = expected(References(), AdHoc("a", make_inputs, remembering), 1)
    assert torch.equal(kept[torch.float64], torch.softmax(make_inputs(1).double(), -1))
    assert torch.equal(found.reference["out"], kept[torch.float64])
