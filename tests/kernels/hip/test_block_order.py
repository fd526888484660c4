"""The order of blocks for several XCDs: nothing is left out, and the heads of a K/V head share one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kernels.hip.emulator import load
from kernels.hip.prefill import BACKENDS
from kernels.hip.sources import HipKernel
from kernels.hip.steps import problem_of
from pytest_attnperf.kernel_builds import ALL_ARCHS
from pytest_attnperf.workloads.prefill import Prefill

KERNEL = Path(__file__).resolve().parent / "emulator_kernels" / "order.hip"
BEST = next(backend for backend in BACKENDS if backend.name == "hip.best")

ORDERS = [(2, 4, 4, 5, 8), (4, 4, 1, 3, 8), (3, 3, 3, 2, 8), (1, 19, 2, 7, 8), (7, 1, 5, 4, 8), (1, 1, 8, 3, 8),
          (1, 1, 1, 1, 8), (13, 1, 2, 3, 4), (3, 5, 2, 1, 6)]  # fmt: skip
"""Batches, K/V heads of each, query heads of each of these, blocks of rows of each of these, XCDs."""

Block = tuple[int, int, int]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For objects that nobody needs again."""
    return tmp_path_factory.mktemp("ordered")


@pytest.fixture
def order_of(emulate: Callable[[str], None], cache: Path) -> Callable[..., Sequence[Block]]:
    """`order_of(batches, kv_heads, group, blocks, xcds)`: (K/V head, rank, query head) of every workgroup in the order
    of dispatch, heads counted over all batches."""
    import torch

    emulate("gfx942")

    def run(batches: int, kv_heads: int, group: int, blocks: int, xcds: int) -> Sequence[Block]:
        heads = kv_heads * group
        out = torch.full((batches * heads * blocks, 3), -1, dtype=torch.int32)
        kernel = HipKernel(str(KERNEL), "order", 1, {"XCDS": str(xcds)})
        load(kernel, cache=cache)((blocks, heads, batches), out, blocks, heads, kv_heads)
        assert out[:, 1].max() < heads
        assert out[:, 2].max() < batches
        found = [(batch * heads + head, rank) for rank, head, batch in out.tolist()]
        return [(head // group, rank, head) for head, rank in found]

    return run


@pytest.mark.parametrize("case", ORDERS, ids=str)
def test_every_block_is_done_once_and_heads_share_an_xcd(
    case: Sequence[int], order_of: Callable[..., Sequence[Block]]
) -> None:
    """Workgroup n runs on XCD n % XCDS. As many K/V heads as the XCDs divide are dealt evenly, and each XCD works
    through one after another, the first blocks of all its heads first; odd counts of all leave no block out."""
    batches, kv_heads, group, blocks, xcds = case
    order = order_of(*case)
    assert sorted(order) == sorted(
        (head // group, rank, head) for head in range(batches * kv_heads * group) for rank in range(blocks)
    )
    dealt = batches * kv_heads // xcds * xcds
    xcds_of: dict[int, set[int]] = {}
    for number, (kv_head, _, _) in enumerate(order):
        xcds_of.setdefault(kv_head, set()).add(number % xcds)
    assert [xcds_of[kv_head] for kv_head in range(dealt)] == [{kv_head % xcds} for kv_head in range(dealt)]
    for xcd in range(xcds if dealt else 0):
        walked = [block for block in order[xcd::xcds] if block[0] < dealt]
        assert walked == sorted(walked)


def test_one_xcd_leaves_the_order_of_the_grid(order_of: Callable[..., Sequence[Block]]) -> None:
    """Without XCDS the blocks of a head are neighbours, which puts them on different XCDs."""
    order = order_of(2, 4, 2, 5, 1)
    assert order == sorted(order, key=lambda block: (block[2], block[1]))
    assert len({number % 8 for number, block in enumerate(order) if block[0] == 0}) == 8


def test_cdna3_and_cdna4_order_for_their_eight_xcds() -> None:
    """No other architecture's configuration names XCDs."""
    workload = Prefill.parse("prefill-b4-s4096-h32-d128-f16")
    (space,) = BEST.spaces
    named = {
        arch: space.choose(arch, problem_of(workload)).config.get("XCDS") for arch in (*ALL_ARCHS, "sm_90", "gfx1030")
    }
    assert {arch: count for arch, count in named.items() if count} == {"gfx942": 8, "gfx950": 8}


@pytest.mark.parametrize(
    ("arch", "text"),
    [
        ("gfx942", "prefill-b3-s40-h6-hk3-d32-f16-causal-lse"),
        ("gfx950", "prefill-b2-s137-h10-hk5-d32-bf16"),
    ],
)
def test_results_in_that_order_are_right(
    arch: str, text: str, emulate: Callable[[str], None], judged: Callable[..., tuple[str, ...]]
) -> None:
    """With nine and ten K/V heads, of which one and two are left over, and several blocks of rows."""
    emulate(arch)
    assert judged(BEST, text) == ()
