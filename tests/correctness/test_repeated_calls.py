"""Calls that are queued before anybody waits are each compared, and those that are unlike a right one are judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from pytest_attnperf.correctness.repeated_calls import AHEAD, REPLAYS, USUAL, CallRepeats, RepeatedCalls

RIGHT = torch.arange(8.0)
LEAST = USUAL.calls_least
UNHURRIED = replace(USUAL, seconds_most=60.0)
"""A busy machine does not end the calls before as many were made as are promised."""


class Backend:
    """Returns RIGHT, but for the calls that are to be wrong; into one buffer where there is one."""

    def __init__(self, wrong: tuple[int, ...] = (), buffers: int = 0) -> None:
        self.wrong, self.made = wrong, 0
        self.buffers = [torch.empty(8) for _ in range(buffers)]

    def __call__(self) -> torch.Tensor:
        """One call."""
        self.made += 1
        result = RIGHT + (self.made in self.wrong)
        return self.buffers[self.made % len(self.buffers)].copy_(result) if self.buffers else result


def repeated(
    run: Callable[[], Any], single: Callable[[], Any] | None = None, repeats: CallRepeats = UNHURRIED
) -> RepeatedCalls:
    """The calls as a GPU's are made, which is no other on a CPU."""

    def judge(number: int, raw: Any, written: Any) -> tuple[str, ...]:
        return () if torch.equal(raw, RIGHT) else (f"call {number}",)

    calls = RepeatedCalls(lambda call, number: (call(), {}), judge, on_gpu=True, repeats=repeats)
    calls.repeat(run, single)
    return calls


@pytest.mark.parametrize("wrong", [1, 2, 9, LEAST - 1])
def test_whichever_call_is_wrong_it_is_found(wrong: int) -> None:
    """The first, one in the middle of those queued together, and one of the last."""
    found = repeated(Backend((wrong,)))
    assert found.problems == [(f"call {wrong}",)]
    assert found.calls >= LEAST


def test_calls_without_a_fault_are_right() -> None:
    """Nothing is said, and as many calls were made as are promised."""
    found = repeated(Backend())
    assert not found.problems
    assert found.calls >= LEAST


def test_as_many_calls_are_made_as_asked() -> None:
    """A caller whose calls are slow on purpose asks for fewer."""
    assert 3 <= repeated(Backend(), repeats=CallRepeats(3, 0.0, 60.0)).calls <= 2 + AHEAD < LEAST


@pytest.mark.parametrize("buffers", [1, 2])
def test_results_that_share_memory_are_looked_at_one_by_one(buffers: int) -> None:
    """A wrong result in a buffer that later calls overwrite is judged before they do."""
    assert not repeated(Backend(buffers=buffers)).problems
    found = repeated(Backend((AHEAD + 5,), buffers=buffers))
    assert found.problems == [(f"call {AHEAD + 5}",)]


def test_a_block_is_repeated_a_few_times_and_then_its_call() -> None:
    """The last result is all that is seen of a block, so that most calls are made alone; each may be wrong."""
    block, single = Backend(buffers=1), Backend()
    assert not repeated(block, single).problems
    assert block.made == REPLAYS
    assert single.made >= LEAST - REPLAYS
    assert repeated(Backend((2,), buffers=1), Backend()).problems == [("call 2",)]
    assert repeated(Backend(buffers=1), Backend((3,))).problems == [(f"call {REPLAYS + 3}",)]


def test_another_number_of_results_is_unlike() -> None:
    """A call that returns fewer tensors than a right one did is judged."""
    answers = iter([2] + [1] * 10**6)
    calls = RepeatedCalls(
        lambda call, number: (call(), {}), lambda number, raw, written: ("few",) * (2 - len(raw)), on_gpu=True
    )
    calls.repeat(lambda: tuple(RIGHT.clone() for _ in range(next(answers))))
    assert len(calls.problems) == calls.calls - 1
