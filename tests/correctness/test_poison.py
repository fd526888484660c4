from __future__ import annotations

import pytest
import torch

from pytest_attnperf.correctness import poison

FP8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]


def test_every_plain_tensor_is_found() -> None:
    """Tensors are found in nested tuples, lists and dicts, parameters as tensors; other values are passed over."""
    a, b, c = (torch.ones(1) for _ in range(3))
    parameter = torch.nn.Parameter(torch.ones(1))
    raw = (a, [b, None, 3], {"lse": (c,), "text": "x"}, parameter, torch.ones(2).to_sparse())
    found = list(poison.tensors_in(raw))
    assert [tensor.data_ptr() for tensor in found] == [tensor.data_ptr() for tensor in (a, b, c, parameter)]
    assert all(type(tensor) is torch.Tensor for tensor in found)


FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]


@pytest.mark.parametrize("dtype", FLOATS + FP8)
def test_floats_are_filled_with_nan(dtype: torch.dtype) -> None:
    """No element of a filled tensor keeps its value, in fp8 no more than in wider types."""
    tensor = torch.ones(3, 4).to(dtype)
    poison.fill(tensor)
    assert bool(tensor.to(torch.complex64).isnan().all())


@pytest.mark.parametrize(
    ("dtype", "value"), [(torch.int8, -128), (torch.uint8, 255), (torch.int32, -(2**31)), (torch.int64, -(2**63))]
)
def test_integers_get_their_most_extreme_value(dtype: torch.dtype, value: int) -> None:
    """Types without a NaN get a value no result holds by chance; 0, the smallest of uint8, is not one."""
    tensor = torch.arange(3).to(dtype)
    poison.fill(tensor)
    assert tensor.tolist() == [value] * 3


def test_booleans_change() -> None:
    """Every boolean becomes its opposite."""
    booleans = torch.tensor([True, False])
    poison.fill(booleans)
    assert booleans.tolist() == [False, True]


def test_views_and_inference_tensors_are_filled_in_place() -> None:
    """Expanded and strided views are filled without touching their neighbours, and so are inference tensors."""
    base = torch.zeros(4, 4)
    poison.fill(base[:, ::2])
    assert base.isnan().sum(0).tolist() == [4, 0, 4, 0]
    row = torch.zeros(1, 3)
    poison.fill(row.expand(5, 3))
    assert bool(row.isnan().all())
    with torch.inference_mode():
        made = torch.ones(2)
    poison.fill(made)
    assert bool(made.isnan().all())


def test_windows_that_overlap_are_changed_once() -> None:
    """A boolean that four windows share is inverted, not inverted four times."""
    mask = torch.tensor([True, False, True, True, False, True])
    poison.fill(mask.unfold(0, 4, 1))
    assert mask.tolist() == [False, True, False, False, True, False]


def test_freed_memory_of_an_outputs_size_is_nan() -> None:
    """What `torch.empty` gives after the fill holds no stale values: NaN, or memory fresh from the system.

    On a CPU that is best effort: malloc may join freed blocks and hand out a piece that lies across two of them. So
    most of several attempts must succeed; without the fill none would.
    """
    like = torch.ones(64, 64, dtype=torch.float64)
    attempts = []
    for _ in range(9):
        stale = [torch.full((64, 64), 1234.0, dtype=torch.float16) for _ in range(4)]
        del stale
        poison.fill_free_blocks([(like, torch.float16)])
        attempts.append(torch.empty(64, 64, dtype=torch.float16))
    assert sum(bool((fresh == 1234.0).any()) for fresh in attempts) <= 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, *FP8])
def test_freed_memory_is_nan_in_every_type(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of freed blocks are NaN in the output's own type: 0xFF is a number in the fnuz types."""
    filled: list[torch.Tensor] = []
    full = torch.full

    def spied(*args: object, **options: object) -> torch.Tensor:
        filled.append(full(*args, **options))  # type: ignore[arg-type]
        return filled[-1]

    monkeypatch.setattr(torch, "full", spied)
    poison.fill_free_blocks([(torch.ones(5, 3), dtype)])
    assert filled
    assert all(block.numel() == 15 * dtype.itemsize for block in filled)
    assert all(bool(block.view(dtype).double().isnan().all()) for block in filled)


def test_destroyed_inputs_hold_nothing_of_what_they_were() -> None:
    """Floats become NaN, integers extreme, booleans their opposite, leaves that require gradients included."""
    leaf = torch.ones(2, requires_grad=True)
    with torch.inference_mode():
        made = torch.ones(2)
    index, mask, fp8 = torch.arange(3), torch.tensor([True, False]), torch.ones(2).to(torch.float8_e4m3fnuz)
    poison.destroy([leaf, made, index, mask, fp8, torch.empty(0, 3)])
    assert all(bool(tensor.isnan().all()) for tensor in (leaf, made, fp8.float()))
    assert index.tolist() == [torch.iinfo(torch.int64).min] * 3
    assert mask.tolist() == [False, True]


def test_views_that_share_memory_are_destroyed_once() -> None:
    """Expanded tensors, overlapping windows and two views of one mask are all overwritten, the mask not twice."""
    row, series, mask = torch.zeros(1, 3), torch.zeros(6), torch.tensor([True, False, True])
    poison.destroy([row.expand(5, 3), series.unfold(0, 4, 1), mask, mask.view(3, 1), mask[:2]])
    assert bool(row.isnan().all())
    assert bool(series.isnan().all())
    assert mask.tolist() == [False, True, False]


def test_a_strided_view_is_destroyed_without_its_neighbours() -> None:
    """A packed tensor's other parts keep their values, whatever the order of the view's dimensions."""
    packed = torch.zeros(4, 3, 5)
    poison.destroy([packed[:, 1].T])
    assert packed.isnan().sum((0, 2)).tolist() == [0, 20, 0]


def test_overlap_is_about_addresses() -> None:
    """Views of the same memory overlap, disjoint parts of one storage do not."""
    base = torch.zeros(8, 4)
    assert poison.has_overlap(base, base.view(4, 8))
    assert poison.has_overlap(base[:5], base[4:])
    assert not poison.has_overlap(base[:4], base[4:])
    assert not poison.has_overlap(base, base.clone())
    assert not poison.has_overlap(base, base[:0])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.int64, torch.complex128])
def test_bit_equality_is_exact(dtype: torch.dtype) -> None:
    """Equal bits are equal, also in a strided view; one changed element is not."""
    tensor = torch.arange(12).reshape(3, 4).to(dtype)
    assert poison.is_bit_equal(tensor.T, tensor.T.contiguous())
    assert not poison.any_bit_differs([tensor.T], [tensor.T.contiguous()])
    other = tensor.clone()
    other[2, 3] += 1
    assert not poison.is_bit_equal(tensor, other)
    assert poison.any_bit_differs([tensor, tensor], [tensor, other])
    assert not poison.is_bit_equal(tensor, tensor[:2])
    assert poison.any_bit_differs([tensor], [tensor[:2]]) is True


def test_bits_of_results_on_several_devices_are_compared() -> None:
    """A kernel may return a seed on the CPU beside its results: the answer waits where these are."""
    pair = [torch.zeros(3), torch.zeros(3, device="meta")]
    found = poison.any_bit_differs(pair, [tensor.clone() for tensor in pair])
    assert isinstance(found, torch.Tensor)
    assert found.device.type == "meta"


def test_bit_equality_knows_nan_and_signed_zero() -> None:
    """NaN equals itself bit by bit, 0.0 and -0.0 do not."""
    assert poison.is_bit_equal(torch.tensor([float("nan")]), torch.tensor([float("nan")]))
    assert not poison.is_bit_equal(torch.tensor([0.0]), torch.tensor([-0.0]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn])
def test_neighbouring_numbers_are_one_ulp_apart(dtype: torch.dtype) -> None:
    """In any format, on both sides of zero; the element that differs most is named."""
    one = torch.tensor([[1.0, -2.0], [0.0, 4.0]]).to(dtype)
    assert poison.find_bit_difference(one, one.clone()) is None
    bits = one.clone().view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[dtype.itemsize])
    bits[0, 1] += 3
    bits[1, 1] += 1
    found = poison.find_bit_difference(one, bits.view(dtype))
    assert found == poison.BitDifference(3.0, (0, 1), 2)
    least = torch.zeros(2, 2).to(dtype).view(bits.dtype)
    least[1, 0] = 1
    found = poison.find_bit_difference(torch.zeros(2, 2).to(dtype), least.view(dtype))
    assert found == poison.BitDifference(1.0, (1, 0), 1)


def test_a_difference_of_signs_counts_through_zero() -> None:
    """The two least numbers around zero are two apart; 0.0 and -0.0 differ, by what counts as 1."""
    least = torch.tensor([1], dtype=torch.int16).view(torch.float16)
    assert poison.find_bit_difference(least, -least) == poison.BitDifference(2.0, (0,), 1)
    zero = torch.zeros(1, dtype=torch.float16)
    assert poison.find_bit_difference(zero, -zero) == poison.BitDifference(1.0, (0,), 1)


def test_nan_is_nan_whatever_its_bits() -> None:
    """Every NaN equals every other one; beside a number it is infinitely far."""
    nan = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert poison.find_bit_difference(nan, nan.flip(0)) is None
    found = poison.find_bit_difference(nan, torch.tensor([float("nan"), 1.0]))
    assert found == poison.BitDifference(float("inf"), (1,), 1)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.bool, torch.float64, torch.complex64])
def test_other_types_differ_too(dtype: torch.dtype) -> None:
    """Integers by their difference, at least 1 of anything else."""
    one = torch.tensor([0, 1, 1]).to(dtype)
    other = torch.tensor([0, 0, 1]).to(dtype)
    found = poison.find_bit_difference(one, other)
    assert found is not None
    assert found.ulps >= 1
    assert found.index[0] == 1
    assert found.count == 1
