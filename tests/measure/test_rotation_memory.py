"""A memory by a few elements, one kept by another process, and a call that knows its caller are told by rotation."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch

from pytest_attnperf.backends import Prepared
from pytest_attnperf.measure.rotation import Turning, measure_rotation
from pytest_attnperf.session.plausibility import is_slower_rotated

SIZE = 128


def work(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Some hundreds of microseconds."""
    for _ in range(4):
        x = torch.tanh(x @ w)
    return x


def prepared(call: Callable[..., torch.Tensor]) -> Prepared:
    """Bound to inputs of its own."""
    generator = torch.Generator().manual_seed(99)
    inputs = tuple(torch.randn(SIZE, SIZE, generator=generator) for _ in range(2))
    return Prepared(call, inputs, lambda new: new, lambda raw: {"out": raw})


def remembering_few(number: int) -> Callable[..., torch.Tensor]:
    """The same, but it looks at one element of each input only, wherever that lies."""
    known: dict[tuple[float, ...], torch.Tensor] = {}

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        key = tuple(float(tensor.flatten()[number]) for tensor in (x, w))
        if key not in known:
            known[key] = work(x, w)
        return known[key].clone()

    return call


@pytest.mark.parametrize("number", [3, 5, 5001, SIZE * SIZE - 2])
def test_a_memory_of_a_few_elements_shows(number: int) -> None:
    """Where that costs little, every element of an input changes."""
    own = prepared(remembering_few(number))
    rotations = [measure_rotation(own, "cpu", block_us=2000.0, call_us=20.0) for _ in range(3)]
    assert sum(map(is_slower_rotated, rotations)) >= 2


def test_every_element_changes_in_every_turn_where_that_is_cheap() -> None:
    """All but some of 33 words, and each to a value that it did not have for 100 turns."""
    tensor = torch.randn(64, 64)
    turn, before = Turning([tensor], 10.0), [tensor.clone()]
    for _ in range(100):
        turn()
        before.append(tensor.clone())
    for earlier in before[:-1]:
        assert int((tensor == earlier).sum()) <= 2 * 33


def test_inputs_that_are_one_tensor_change_by_words() -> None:
    """What changes twice by an exclusive or is back where it was."""
    both = torch.randn(64, 64)
    turn, before = Turning([both, both], 10.0), both.clone()
    turn()
    assert not torch.equal(both, before)


def test_two_processes_do_not_turn_alike() -> None:
    """What one leaves on disk for each content is of no use to another: turns are counted from a random number."""
    seen: set[int] = set()
    for _ in range(3):
        tensor = torch.ones(64, 64).mul_(1.5)
        turn = Turning([tensor], 10.0)
        contents = set()
        for _ in range(50):
            turn()
            contents.add(int(tensor.view(torch.int64).sum()))
        assert not contents & seen
        seen |= contents


def who_calls(name: str) -> bool:
    """Whether a function of this name is among the callers."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_name == name:
            return True
    return False


@pytest.mark.parametrize("honest", [False, True], ids=["liar", "twin"])
def test_an_old_result_on_changing_inputs_is_told(honest: bool) -> None:
    """A call that knows this timing by its caller gives an old result there, which no time shows."""
    kept: list[torch.Tensor] = []

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        if honest or not kept or not who_calls("turn_and_run"):
            kept[:] = [work(x, w)]
        return kept[0].clone()

    stale: list[str] = []
    measure_rotation(prepared(call), "cpu", block_us=500.0, call_us=300.0, stale=stale)
    assert bool(stale) == (not honest), stale
    assert all("a call must compute its result whoever makes it" in text for text in stale)
