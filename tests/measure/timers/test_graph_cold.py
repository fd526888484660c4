from __future__ import annotations

import pytest
import torch

from pytest_attnperf.measure.timers.graph import GraphTimer
from pytest_attnperf.measure.timers.graph_cold import CallRounds, GraphColdTimer, count_rounds_per_block
from pytest_attnperf.measure.timers.timer import MAX_CALLS_PER_BLOCK

MIB = 2**20


def test_calls_take_turns_and_the_first_result_is_kept() -> None:
    """Round and round in their order, the case's own call at the end of each round."""
    calls = CallRounds([lambda: "first copy", lambda: "second copy", lambda: "own"])
    made = [calls() for _ in range(6)]
    assert made == ["first copy", "second copy", "own"] * 2
    assert calls.first == "first copy"


@pytest.mark.parametrize(
    ("block_us", "call_us", "copies", "rounds"),
    [
        (1000.0, 20.0, 5, 10),
        (1000.0, 19.0, 5, 11),
        (1000.0, 600.0, 2, 1),
        (1000.0, 5000.0, 43, 1),
        (1000.0, 0.1, 1500, 1),
        (1000.0, 0.1, 600, 3),
        (1000.0, 0.0, MAX_CALLS_PER_BLOCK, 1),
    ],
)
def test_a_block_is_whole_rounds(block_us: float, call_us: float, copies: int, rounds: int) -> None:
    """As many as fill the block, at least one however long it is, and no more calls than a graph may hold."""
    assert count_rounds_per_block(block_us, call_us, copies) == rounds


@pytest.mark.gpu
def test_a_cold_call_is_slower_than_a_hot_one() -> None:
    """Summing 16 MiB reads the last-level cache when hot and memory when cold: a round holds 512 MiB."""
    sources = [torch.randn(16 * MIB // 4, device="cuda") for _ in range(32)]
    calls = [lambda source=source: source.sum() for source in sources]
    hot, cold = GraphTimer(), GraphColdTimer(calls[:-1])
    hot.prepare(calls[-1], 600.0)
    cold.prepare(calls[-1], 600.0)
    assert cold.calls_per_block % 32 == 0
    hot_us, cold_us = sorted(hot.measure(9))[4], sorted(cold.measure(9))[4]
    hot.close()
    cold.close()
    assert cold_us > 1.05 * hot_us


@pytest.mark.gpu
def test_the_first_and_the_last_call_of_a_block_keep_their_results() -> None:
    """Each computes from the copy it belongs to, as it is when the block is replayed."""
    copies = [torch.full((1024,), float(number), device="cuda") for number in range(3)]
    timer = GraphColdTimer([lambda copy=copy: copy * 2 for copy in copies[:-1]])
    timer.prepare(lambda: copies[-1] * 2, 200.0)
    assert timer.calls_per_block % 3 == 0
    copies[0].fill_(10.0)
    copies[-1].fill_(20.0)
    assert (float(timer.run_first()[5]), float(timer.run_once()[5])) == (20.0, 40.0)
    timer.close()


@pytest.mark.gpu
def test_many_copies_of_a_long_call_make_one_round() -> None:
    """A round that takes longer than a block is a block, once."""
    matrices = [torch.randn(4096, 4096, device="cuda", dtype=torch.float16) for _ in range(20)]
    timer = GraphColdTimer([lambda matrix=matrix: matrix @ matrix for matrix in matrices[:-1]])
    timer.prepare(lambda: matrices[-1] @ matrices[-1], 600.0)
    assert timer.calls_per_block == 20
    [per_call_us] = timer.measure(1)
    timer.close()
    assert per_call_us * 20 > 600.0
