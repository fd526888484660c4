from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_attnperf.correctness import scan
from pytest_attnperf.correctness.budget import list_problems
from pytest_attnperf.correctness.metrics import MismatchError, Yardstick, compare_output, measure_yardstick
from pytest_attnperf.records import ErrorFigures, Tolerance


def figures(got: torch.Tensor, reference: torch.Tensor, max_error: float = 0.0, rms_error: float = 1.0) -> ErrorFigures:
    """Compare under a yardstick of the given errors."""
    return compare_output("check", "out", got, reference, Yardstick(got.dtype, max_error, rms_error), Tolerance())


class Watched(TorchDispatchMode):
    """Records the largest fp64 tensor that any operation made, and how often a number was waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0
        self.waits = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.waits += func is torch.ops.aten._local_scalar_dense.default
        if isinstance(result, torch.Tensor) and result.dtype == torch.float64:
            self.largest = max(self.largest, result.numel())
        return result


WRONG_IN_MANY_WAYS = {
    "right": lambda got: got,
    "one element": lambda got: got.index_put((torch.tensor(1), torch.tensor(30)), got.new_tensor(9.0)),
    "a row": lambda got: torch.cat([got[:1], got[1:] + 1]),
    "NaN at the end": lambda got: got.index_put((torch.tensor(2), torch.tensor(36)), got.new_tensor(math.nan)),
    "a finite one for Inf": lambda got: got.nan_to_num(posinf=7.0),
    "Inf everywhere": lambda got: torch.full_like(got, math.inf),
}


@pytest.mark.parametrize("infinite", [False, True])
@pytest.mark.parametrize("wrong", WRONG_IN_MANY_WAYS.values(), ids=WRONG_IN_MANY_WAYS)
def test_chunks_change_nothing(wrong: Any, infinite: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking at 7 elements at a time, across rows, gives the figures of looking at all at once."""
    reference = torch.randn(3, 37, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    if infinite:
        reference[1, 4] = math.inf
    got = wrong(reference.half())
    plain = reference.half()
    results = []
    for chunk in (scan.CHUNK, 7):
        monkeypatch.setattr(scan, "CHUNK", chunk)
        yardstick = measure_yardstick("out", reference, plain, non_finite=True)
        results.append(vars(compare_output("check", "out", got, reference, yardstick, Tolerance())))
    whole, parts = results
    sums = {name: (whole.pop(name), parts.pop(name)) for name in ("rms_error", "rms_budget", "max_budget")}
    assert whole == parts
    assert all(one == pytest.approx(other, rel=1e-12) for one, other in sums.values())


def test_copies_are_no_larger_than_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No fp64 tensor larger than a chunk is made of an output, right or wrong, so memory is bounded."""
    monkeypatch.setattr(scan, "CHUNK", 500)
    reference = torch.linspace(1, 2, 2000).reshape(2, 50, 20)
    right, wrong, nan = reference.half(), reference.half() + 1, reference.half() * math.nan
    with Watched() as watched:
        yardstick = measure_yardstick("out", reference, right)
        for got in (right, wrong, nan, right.transpose(0, 1).contiguous().transpose(0, 1)):
            compare_output("check", "out", got, reference, yardstick, Tolerance())
    assert 0 < watched.largest <= 500


def test_a_right_output_is_judged_in_two_transfers(monkeypatch: pytest.MonkeyPatch) -> None:
    """All numbers leave the device together, then the neighbours; nothing else waits for it."""
    reference = torch.linspace(1, 2, 60, dtype=torch.float64).reshape(3, 20)
    yardstick = replace(measure_yardstick("out", reference, reference.half()), lines={})
    transfers: list[tuple[int, ...]] = []
    tolist = torch.Tensor.tolist

    def counted(tensor: torch.Tensor) -> Any:
        transfers.append(tuple(tensor.shape))
        return tolist(tensor)

    monkeypatch.setattr(torch.Tensor, "tolist", counted)
    monkeypatch.setattr(scan, "CHUNK", 25)
    with Watched() as watched:
        compare_output("check", "out", reference.half(), reference, yardstick, Tolerance())
    assert len(transfers) == 2
    assert watched.waits == 0


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint64])
def test_integers_beyond_doubles_are_compared_exactly(dtype: torch.dtype) -> None:
    """2^53 + 1 is not 2^53, though no fp64 holds it: one such element is found, placed and off by one."""
    reference = torch.tensor([[5, 2**53, 7], [2**53, 1, 2]]).to(dtype)
    got = torch.tensor([[5, 2**53, 7], [2**53 + 1, 1, 2]]).to(dtype)
    assert list_problems([figures(reference.clone(), reference, 0.0, 0.0)]) == ()
    result = figures(got, reference, 0.0, 0.0)
    assert (result.max_error, result.worst_index, result.beyond_count) == (1.0, (1, 0), 1)
    assert list_problems([result])
    with pytest.raises(MismatchError, match=re.escape("most at (1, 0)")):
        measure_yardstick("index", reference, got)


@pytest.mark.parametrize(
    ("column", "first", "count"), [(0, 0, 3), (1, 0, 4), (2, 0, 5), (4, 2, 5), (5, 3, 4), (6, 4, 3)]
)
def test_the_neighbours_are_along_the_last_dimension(column: int, first: int, count: int) -> None:
    """Up to two elements either side of the worst, as far as the row goes."""
    reference = torch.arange(21, dtype=torch.float64).reshape(3, 7)
    got = reference.float()
    got[1, column] += 5
    result = figures(got, reference)
    assert (result.worst_index, result.around_first) == ((1, column), first)
    assert result.around_expected == tuple(reference[1, first : first + count].tolist())
    assert result.around_got == tuple(got[1, first : first + count].tolist())


def test_a_scalar_has_no_neighbours() -> None:
    """A result of no dimensions is judged like any other."""
    result = figures(torch.tensor(1.5), torch.tensor(1.0, dtype=torch.float64))
    assert (result.worst_index, result.around_got, result.beyond_count, result.beyond_last) == ((), (1.5,), 1, ())
    assert "is off by 0.5 at ()" in list_problems([result])[0]


def test_the_box_holds_every_element_beyond() -> None:
    """Number and bounding box of all elements beyond their budget."""
    reference = torch.ones(2, 48, 4, 32, dtype=torch.float64)
    got = reference.half()
    got[:, 32:, 1:3, 7] += 0.5
    result = figures(got, reference, max_error=0.1)
    assert result.beyond_count == 2 * 16 * 2
    assert (result.beyond_first, result.beyond_last) == ((0, 32, 1, 7), (1, 47, 2, 7))


def test_a_right_output_has_no_box() -> None:
    """Where nothing is beyond, there is nothing to say of it."""
    result = figures(torch.ones(4), torch.ones(4, dtype=torch.float64))
    assert (result.beyond_count, result.beyond_first, result.beyond_last) == (0, (), ())


def test_strides_do_not_matter() -> None:
    """Transposed, strided and expanded outputs are compared by their elements, not by their memory."""
    reference = torch.arange(24, dtype=torch.float64).reshape(4, 6)
    storage = torch.zeros(6, 8)
    transposed = storage[:, ::2].T
    transposed.copy_(reference)
    assert not transposed.is_contiguous()
    assert list_problems([figures(transposed, reference)]) == ()
    transposed[3, 1] += 1
    assert figures(transposed, reference).worst_index == (3, 1)
    expanded = torch.ones(1, 6).expand(4, 6)
    assert list_problems([figures(expanded, torch.ones(4, 6, dtype=torch.float64))]) == ()
    assert figures(expanded, reference).beyond_count == 23
    assert figures(torch.arange(24.0).reshape(4, 6), reference.T.contiguous().T).beyond_count == 0
