from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pytest_attnperf.workloads.edge_planting import is_free, list_edges, plant_edges

TENSORS: dict[str, tuple[Callable[[], torch.Tensor], bool]] = {
    "normal": (lambda: torch.randn(64, 100), True),
    "uniform": (lambda: torch.rand(64, 100) - 0.5, True),
    "bf16": (lambda: torch.randn(2, 3, 40, 64).bfloat16(), True),
    "vector": (lambda: torch.randn(100), True),
    "few": (lambda: torch.tensor([1.0, -1.0, 0.5]), True),
    "positive": (lambda: torch.rand(64, 100), False),
    "negative": (lambda: torch.nn.functional.logsigmoid(torch.randn(64, 100)), False),
    "around one": (lambda: 1 + 0.1 * torch.randn(100), False),
    "angles": (lambda: torch.cos(torch.arange(128)[:, None] / 10000 ** (torch.arange(32) / 32)), False),
    "signs": (lambda: torch.randn(64, 100).sign(), False),
    "mask": (lambda: torch.zeros(8, 8).masked_fill(torch.ones(8, 8).triu(1).bool(), float("-inf")), False),
    "normalised": (lambda: torch.nn.functional.normalize(torch.randn(64, 100), dim=-1), False),
    "index": (lambda: torch.arange(100), False),
    "bool": (lambda: torch.randn(100) > 0, False),
    "fp8": (lambda: torch.randn(64, 100).to(torch.float8_e4m3fn), False),
    "zeros": (lambda: torch.zeros(64, 100), False),
    "scalar": (lambda: torch.tensor(-0.5), False),
    "nan": (lambda: torch.full((8, 8), float("nan")), False),
}


@pytest.mark.parametrize("name", TENSORS)
def test_only_free_numbers_are_planted(name: str) -> None:
    """What a spike would make meaningless is left alone: angles, probabilities, masks, scales, normalised rows."""
    make, expected = TENSORS[name]
    torch.manual_seed(0)
    assert is_free(make()) == expected


def test_edges_are_where_kernels_go_wrong() -> None:
    """Both ends, powers of two and the last tile, with their neighbours, within the axis."""
    found = list_edges(1000)
    assert found == sorted(set(found))
    assert {0, 1, 2, 127, 128, 129, 511, 512, 513, 998, 999, 895, 896, 897} <= set(found)
    assert found[-1] == 999
    assert list_edges(1) == [0]
    assert list_edges(3) == [0, 1, 2]


def test_the_last_element_of_every_axis_is_planted() -> None:
    """The first and last row and column hold elements far above the usual, and most rows are as they were."""
    torch.manual_seed(0)
    x = torch.randn(512, 1000)
    (planted,) = plant_edges((x,), (0,), seed=1, amplitude=64.0)
    changed = (planted != x).any(-1)
    assert changed[0]
    assert changed[-1]
    assert planted[:, -1].abs().max() > 60
    assert planted[:, 0].abs().max() > 60
    assert planted[-1].abs().max() > 10 * x[-1].abs().max()
    assert 0.02 < changed.float().mean() < 0.4


def test_planting_is_the_same_for_a_seed_and_another_for_another() -> None:
    """A case is planted alike in every process; the tensors themselves are never written to."""
    x = torch.randn(4, 8, 100, 64).half()
    before = x.clone()
    one, again, other = (plant_edges((x,), (0,), seed, 16.0)[0] for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(x, before)
    assert one.isfinite().all()


def test_every_axis_has_planted_ends() -> None:
    """Of attention's (batch, heads, sequence, size), the last key of some head is planted over a few seeds."""
    x = torch.randn(2, 4, 100, 64)
    seen = torch.zeros(100, dtype=torch.bool)
    for seed in range(3):
        (planted,) = plant_edges((x,), (0,), seed, 64.0)
        seen |= (planted != x).any(-1).any(0).any(0)
    assert seen[[0, 99, 63, 64, 96]].all()
