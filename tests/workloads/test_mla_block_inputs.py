"""Planted keys of a layer of latent attention: they dominate their rows, and a mask hides some of them."""

from __future__ import annotations

import math

import pytest

from pytest_attnperf.workloads import mla_block_math
from pytest_attnperf.workloads.block_planting import choose_plants
from pytest_attnperf.workloads.mla_block import MlaBlock

torch = pytest.importorskip("torch")

SIZES = "e=160,h=4,q=128,d=32,r=16,c=64"
LINES = (
    f"b=2,s=17,{SIZES},f16",
    f"b=2,s=5,p=40,room=60,{SIZES},bf16,fp8w",
    "b=3,s=1,p=90,e=160,h=4,d=32,dv=24,r=16,c=64,bf16",
    f"s=7,p=13,{SIZES},f16,expanded",
    "s=1,p=900,e=512,h=4,q=384,d=64,r=32,c=128,bf16",
)


def weights_of_plants(workload: MlaBlock, seed: int, *, planted: bool) -> list[float]:
    """The softmax weight of each planted key among all that its row sees, and itself."""
    given = workload.name_inputs(workload.make_inputs(seed, "cpu", planted=planted))
    weights = mla_block_math.load_weights(workload, given, torch.float64)
    queries = mla_block_math.project_queries(workload, given, weights, torch.float64)
    new = mla_block_math.project_latents(workload, given, weights, torch.float64)
    found = []
    for plant in choose_plants(workload, seed):
        own = tuple(part[plant.batch] for part in new)
        keys, _, _ = mla_block_math.collect_keys(workload, given, weights["wkv_b"], own, plant.batch)
        scores = keys[:, plant.head] @ queries[plant.batch, plant.row, plant.head] / math.sqrt(workload.key_dim)
        seen = scores[: workload.past + plant.row + 1]
        others = torch.cat([seen, scores[plant.key : plant.key + 1]]) if plant.key >= len(seen) else seen
        found.append(float((scores[plant.key] - others.logsumexp(0)).exp()))
    return found


@pytest.mark.parametrize("line", LINES)
def test_planted_keys_hold_most_of_their_rows(line: str) -> None:
    """Over seeds, most planted keys have more than half of the weight, and without planting hardly any has."""
    workload = MlaBlock.parse_line(line)
    planted, others = (
        torch.tensor([w for seed in range(4) for w in weights_of_plants(workload, seed, planted=made)])
        for made in (True, False)
    )
    assert float(planted.median()) > 0.5
    assert float((planted > 0.2).float().mean()) > 0.75
    assert float(others.median()) < 0.25


def test_tokens_stay_of_ordinary_size() -> None:
    """What the norm does not allow is not asked for: no element of x is far beyond those that were drawn."""
    for line in LINES:
        for seed in range(4):
            x = MlaBlock.parse_line(line).make_inputs(seed, "cpu", planted=True)[0].float()
            assert 2.0 < float(x.abs().max()) < 64.0


def test_a_mask_hides_planted_keys_in_turn() -> None:
    """Of the planted keys that are not a row's own, some are hidden, so that ignoring the mask shows, and some seen."""
    workload = MlaBlock.parse_line(f"b=2,s=12,p=9,{SIZES},f16,mask")
    given = workload.name_inputs(workload.make_inputs(1, "cpu", planted=True))
    plants = choose_plants(workload, 1)
    entries = {(p.row, p.key): float(given["mask"][p.row, p.key]) for p in plants}
    assert {value for (row, key), value in entries.items() if key != 9 + row} == {0.0, -math.inf}
    assert {value for (row, key), value in entries.items() if key == 9 + row} == {0.0}
