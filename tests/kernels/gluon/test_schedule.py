"""Blocks of query rows are dealt so that all programs end at about the same time, and none is left out."""

from __future__ import annotations

import pytest

from kernels.gluon.prefill.schedule import BLOCK_COST, count_tiles, deal_blocks, schedule_of
from kernels.triton.prefill.launch import PrefillSizes

torch = pytest.importorskip("torch")

CAUSAL = count_tiles(4096, 4096, 128, 128, causal=True)


@pytest.mark.parametrize(("heads", "tiles"), [(64, CAUSAL), (3, (1,)), (1, CAUSAL), (40, (32,) * 16)])
@pytest.mark.parametrize("at_once", [1, 8, 4096])
def test_every_block_is_dealt_once(heads: int, tiles: tuple[int, ...], at_once: int) -> None:
    """Whatever the number of programs and of heads whose keys are cached together; no program is without one."""
    dealt = deal_blocks(heads, tiles, 132, at_once)
    assert sorted(block for blocks in dealt for block in blocks) == [*range(heads * len(tiles))]
    assert len(dealt) == min(132, heads * len(tiles))
    assert all(dealt)


def test_programs_end_together() -> None:
    """Under a causal mask, whose blocks have 1 to 32 tiles, no program has 3 % more to do than the average."""
    loads = [sum(CAUSAL[block % 32] + BLOCK_COST for block in blocks) for blocks in deal_blocks(64, CAUSAL, 132, 8)]
    assert max(loads) <= 1.03 * sum(loads) / len(loads)


def test_heads_whose_keys_are_cached_together_come_first() -> None:
    """Every program is through with the first eight heads before it begins the next."""
    for blocks in deal_blocks(64, CAUSAL, 132, 8):
        groups = [block // 32 // 8 for block in blocks]
        assert groups == sorted(groups)


@pytest.mark.parametrize(
    ("seq_q", "seq_kv", "causal", "expected"),
    [(200, 100, False, (2, 2)), (200, 100, True, (1, 2)), (128, 300, True, (5,)), (300, 64, True, (1, 1, 1))],
)
def test_tiles_are_those_that_a_block_sees(seq_q: int, seq_kv: int, causal: bool, expected: tuple[int, ...]) -> None:
    """Bottom-right: the last row sees all keys; a block without keys has a tile, too."""
    assert count_tiles(seq_q, seq_kv, 128, 64, causal=causal) == expected


def test_the_table_says_how_many_blocks_a_program_has() -> None:
    """A row for each program: how many, and which; zeros behind them."""
    shape = PrefillSizes(batch=1, seq_q=300, seq_kv=300, heads=1, kv_heads=1, head_dim=64, head_dim_v=64)
    q = torch.zeros(1, 300, 1, 64, dtype=torch.float16)
    assert schedule_of(q, shape, 128, 128, causal=True).tolist() == [[1, 2, 0], [2, 1, 0]]
