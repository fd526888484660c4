"""fp32 functions may sum in any order, and are still held to what one lost term is off by."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pytest_attnperf.correctness.judge import Judge
from pytest_attnperf.correctness.references import References
from pytest_attnperf.records import Tolerance
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend

Kernel = Callable[[torch.Tensor], torch.Tensor]

ROWS, COLUMNS = 16, 1000


def one_after_the_other(powers: torch.Tensor) -> torch.Tensor:
    """The sum of each row, from left to right."""
    found = torch.zeros(powers.shape[0], 1)
    for column in powers.split(1, 1):
        found = found + column
    return found


def in_pairs(powers: torch.Tensor) -> torch.Tensor:
    """The sum of each row as a tree."""
    while powers.shape[1] > 1:
        powers = torch.nn.functional.pad(powers, (0, powers.shape[1] % 2))
        powers = powers[:, ::2] + powers[:, 1::2]
    return powers


def in_blocks(width: int) -> Kernel:
    """Each block by itself, then the blocks."""
    return lambda powers: one_after_the_other(torch.cat([one_after_the_other(b) for b in powers.split(width, 1)], 1))


def softmax(total: Kernel) -> Kernel:
    """With sums in this order."""

    def kernel(x: torch.Tensor) -> torch.Tensor:
        powers = (x - x.amax(-1, keepdim=True)).exp()
        return powers / total(powers)

    return kernel


def online(width: int) -> Kernel:
    """The maximum is that of the blocks so far, and the sum is scaled where it grows."""

    def kernel(x: torch.Tensor) -> torch.Tensor:
        largest, total = torch.full((x.shape[0], 1), -torch.inf), torch.zeros(x.shape[0], 1)
        for block in x.split(width, 1):
            now = torch.maximum(largest, block.amax(-1, keepdim=True))
            total = total * (largest - now).exp() + one_after_the_other((block - now).exp())
            largest = now
        return (x - largest).exp() / total

    return kernel


def powers_of_two(x: torch.Tensor) -> torch.Tensor:
    """exp2, as GPUs have it, and one reciprocal for a row."""
    powers = torch.exp2((x - x.amax(-1, keepdim=True)) * 1.4426950408889634)
    return powers * (1 / one_after_the_other(powers))


def by_its_logarithm(x: torch.Tensor) -> torch.Tensor:
    """exp(x - log-sum-exp): what is subtracted is rounded."""
    return (x - torch.logsumexp(x, -1, keepdim=True)).exp()


HONEST: dict[str, Kernel] = {
    "sequential": softmax(one_after_the_other),
    "reversed": softmax(lambda powers: one_after_the_other(powers.flip(1))),
    "pairwise": softmax(in_pairs),
    "blocks of 16": softmax(in_blocks(16)),
    "blocks of 64": softmax(in_blocks(64)),
    "online 16": online(16),
    "online 64": online(64),
    "exp2": powers_of_two,
    "log-sum-exp": by_its_logarithm,
}


def problems(kernels: dict[str, Kernel], reference: Kernel, columns: int, seeds: range) -> dict[str, list[str]]:
    """What is said of these kernels, by name; nothing of those that are right in every check."""
    workload = AdHoc("f32", lambda seed: (torch.randn(ROWS, columns),), reference)
    references, said = References(), dict[str, list[str]]()
    judges = {}
    for name, kernel in kernels.items():
        prepared = CallableBackend("test.f32", kernel).prepare(workload, workload.make_inputs(0, "cpu", planted=False))
        judge = Judge(prepared, workload, references=references, tolerance=Tolerance(), device="cpu")
        judges[name] = judge, prepared
    for seed in seeds:
        for planted in (False, True):
            for name, (judge, prepared) in judges.items():
                report = judge.check_call("check", prepared.run, seed=seed, planted=planted)
                if report.problems:
                    said.setdefault(name, []).extend(report.problems)
    return said


def plain(x: torch.Tensor) -> torch.Tensor:
    """The reference."""
    return torch.softmax(x, -1)


@pytest.mark.parametrize("columns", [48, COLUMNS, 4096])
def test_a_softmax_may_sum_in_any_order(columns: int) -> None:
    """Sums of thousands of terms, one after the other, are off by several times what one rounding is."""
    assert problems(HONEST, plain, columns, range(1, 4)) == {}


@pytest.mark.soak
@pytest.mark.parametrize("columns", [48, COLUMNS])
def test_a_softmax_may_sum_in_any_order_for_a_thousand_seeds(columns: int) -> None:
    """None of 1,000 seeds accuses any order."""
    assert problems(HONEST, plain, columns, range(1, 1001)) == {}


def test_an_order_of_summation_is_no_licence() -> None:
    """A softmax that loses a column, sums in bf16 or computes in tf32 is wrong in fp32."""
    liars: dict[str, Kernel] = {
        "loses a column": softmax(lambda powers: one_after_the_other(powers[:, :-1])),
        "sums in bf16": softmax(lambda powers: powers.bfloat16().sum(-1, keepdim=True).float()),
        "rounds to bf16": lambda x: torch.softmax(x.bfloat16().float(), -1),
        "rounds to 12 bits": lambda x: torch.softmax(x.half().float(), -1),
    }
    assert problems(liars, plain, COLUMNS, range(1, 3)).keys() == liars.keys()


SUMS: dict[str, tuple[Kernel, Kernel]] = {
    "sum": (lambda x: x.sum(-1), lambda x: one_after_the_other(x)[:, 0]),
    "mean": (lambda x: x.exp().mean(-1), lambda x: one_after_the_other(x.exp())[:, 0] / x.shape[1]),
    "prefix sum": (lambda x: x.exp().cumsum(-1), lambda x: x.exp().flip(1).flip(1).cumsum(-1)),
    "product": (
        lambda x: x.abs() @ x.abs().t(),
        lambda x: torch.cat([one_after_the_other(x.abs() * row.abs()) for row in x], 1),
    ),
}


@pytest.mark.parametrize(("reference", "kernel"), SUMS.values(), ids=SUMS)
def test_other_sums_may_be_in_any_order(reference: Kernel, kernel: Kernel) -> None:
    """Sums, means and products of fp32."""
    assert problems({"sequential": kernel}, reference, COLUMNS, range(1, 4)) == {}
