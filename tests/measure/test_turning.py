"""Inputs change a little in every turn, all of them, and whatever tells contents apart changes with them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pytest_attnperf.measure.turning import Turning

FLOATS = [
    torch.float64,
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
]
TURNS = 600


def drawn(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """From N(0, 1)."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def integers(tensor: torch.Tensor) -> torch.Tensor:
    """The bits of each element."""
    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])


def exclusive_or(words: torch.Tensor) -> int:
    """Of all 64-bit words."""
    found = 0
    for word in words.view(torch.int64).flatten().tolist():
        found ^= word
    return found


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_no_sum_and_no_exclusive_or_comes_again(dtype: torch.dtype) -> None:
    """Neither of the elements' bits nor of 64-bit words; sums of single bytes have too few values, and come again now
    and then."""
    tensor = drawn(dtype, 64, 96)
    turn, sums, words, ors = Turning([tensor], 100.0), set(), set(), set()
    for _ in range(TURNS):
        turn()
        sums.add(int(integers(tensor).sum()))
        words.add(int(tensor.view(torch.int64).sum()))
        ors.add(exclusive_or(tensor))
    assert (len(words), len(ors)) == (TURNS, TURNS)
    assert len(sums) == TURNS if tensor.element_size() > 1 else len(sums) > 0.7 * TURNS


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_values_stay_normal_and_of_their_size(dtype: torch.dtype) -> None:
    """A value keeps its sign and its exponent; denormals would be slow, NaN would be another problem."""
    tensor = drawn(dtype, 33, 32)
    before = tensor.double()
    turn = Turning([tensor], 100.0)
    for _ in range(50):
        turn()
        after = tensor.double()
        normal = before.abs() >= float(torch.finfo(dtype).tiny)
        assert torch.equal(after[~normal], before[~normal])
        assert bool(((after / before)[normal] > 0.4).all())
        assert bool(((after / before)[normal] < 2.1).all())


@pytest.mark.parametrize("value", [0.0, float("inf"), -float("inf"), float("nan"), 1e-40])
def test_what_is_no_normal_number_stays(value: float) -> None:
    """A mask stays a mask, and an empty cache stays empty."""
    mask = torch.full((40, 40), value)
    kept = mask.clone()
    turn = Turning([mask], 100.0)
    turn()
    turn()
    assert torch.equal(mask.view(torch.int32), kept.view(torch.int32))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.bool])
def test_integers_stay(dtype: torch.dtype) -> None:
    """A page table that changed would point outside the cache."""
    table, x = torch.arange(100).to(dtype), torch.randn(100)
    kept, version = table.clone(), x._version
    turn = Turning([table, x], 100.0)
    turn()
    assert torch.equal(table, kept)
    assert x._version > version


def test_every_input_changes_and_torch_counts_it() -> None:
    """Of three inputs none stays, and the version of each moves on, as a host-side cache would see it."""
    tensors = [drawn(torch.bfloat16, 8, 64), drawn(torch.float32, 5), drawn(torch.float16, 1, 300).t()]
    turn = Turning(tensors, 1.0)
    for _ in range(3):
        before, versions = [tensor.clone() for tensor in tensors], [tensor._version for tensor in tensors]
        turn()
        assert not any(torch.equal(one, other) for one, other in zip(before, tensors, strict=True))
        assert all(tensor._version > version for tensor, version in zip(tensors, versions, strict=True))


@pytest.mark.parametrize("shape", [(), (1,), (3,), (0,), (2, 0), (7, 5)])
def test_any_number_of_elements_can_change(shape: tuple[int, ...]) -> None:
    """Also fewer than a word holds, and none."""
    for dtype in (torch.bfloat16, torch.float32, torch.float8_e5m2):
        tensor = torch.ones(shape).to(dtype)
        turn = Turning([tensor], 1.0)
        turn()
        assert not tensor.numel() or not torch.equal(tensor.float(), torch.ones(shape))


def test_a_large_input_costs_no_more_than_a_small_one() -> None:
    """Beside a call of some microseconds a table of 32 MB is changed in a bounded number of words."""
    table = torch.randn(1 << 23)
    before = table.clone()
    Turning([table], 3.0)()
    assert 500 < int((table != before).sum()) < 2000
    assert float(table[0]) != float(before[0])


def test_complex_inputs_change() -> None:
    """Their two parts are numbers like others."""
    tensor = torch.randn(50, dtype=torch.complex64)
    before = tensor.clone()
    Turning([tensor], 1.0)()
    assert not torch.equal(tensor, before)


LAID_OUT = {
    "expanded": lambda: torch.randn(1, 64).expand(2000, 64),
    "a column": lambda: torch.randn(2000, 64)[:, :1],
    "every second": lambda: torch.randn(3000, 6)[:, ::2],
    "windows that overlap": lambda: torch.randn(300).unfold(0, 16, 4),
    "transposed": lambda: torch.randn(30, 40).t(),
    "a part of a buffer": lambda: torch.randn(5000)[1001:2000],
}


@pytest.mark.parametrize("made", LAID_OUT.values(), ids=LAID_OUT)
def test_an_input_changes_however_it_lies(made: Callable[[], torch.Tensor]) -> None:
    """Also where elements share memory, or do not fill it."""
    tensor, seen = made(), set()
    turn = Turning([tensor], 1.0)
    for _ in range(20):
        turn()
        assert bool(tensor.isfinite().all())
        seen.add(int(tensor.contiguous().view(torch.int32).sum()))
    assert len(seen) == 20


def test_what_lies_between_the_elements_stays() -> None:
    """It may be another input, or a guard."""
    whole = torch.randn(200, 8)
    kept = whole.clone()
    Turning([whole[:, :3]], 1.0)()
    assert torch.equal(whole[:, 3:], kept[:, 3:])
    assert not torch.equal(whole[:, :3], kept[:, :3])
