from __future__ import annotations

import pytest
import torch

from pytest_attnperf.correctness import poison


def test_every_plain_tensor_is_found() -> None:
    """Tensors are found in nested tuples, lists and dicts; other values and subclasses are passed over."""
    a, b, c = (torch.ones(1) for _ in range(3))
    raw = (a, [b, None, 3], {"lse": (c,), "text": "x"}, torch.nn.Parameter(torch.ones(1)), torch.ones(2).to_sparse())
    assert [id(tensor) for tensor in poison.tensors_in(raw)] == [id(tensor) for tensor in (a, b, c)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64])
def test_floats_are_filled_with_nan(dtype: torch.dtype) -> None:
    """No element of a filled tensor keeps its value."""
    tensor = torch.ones(3, 4, dtype=dtype)
    poison.fill(tensor)
    assert bool(tensor.isnan().all())


def test_integers_and_booleans_change() -> None:
    """Types without a NaN get a value no result holds by chance."""
    integers, booleans = torch.arange(3, dtype=torch.int32), torch.tensor([True, False])
    poison.fill(integers)
    poison.fill(booleans)
    assert integers.tolist() == [torch.iinfo(torch.int32).min] * 3
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


def test_freed_memory_of_an_outputs_size_is_nan() -> None:
    """What `torch.empty` gives after the fill holds no stale values: NaN, or memory fresh from the system."""
    like = torch.ones(64, 64, dtype=torch.float64)
    stale = [torch.ones(64, 64, dtype=torch.float16) for _ in range(4)]
    del stale
    poison.fill_free_blocks([(like, torch.float16)])
    fresh = torch.empty(64, 64, dtype=torch.float16)
    assert not bool((fresh == 1).any())


def test_overlap_is_about_addresses() -> None:
    """Views of the same memory overlap, disjoint parts of one storage do not."""
    base = torch.zeros(8, 4)
    assert poison.overlap(base, base.view(4, 8))
    assert poison.overlap(base[:5], base[4:])
    assert not poison.overlap(base[:4], base[4:])
    assert not poison.overlap(base, base.clone())
    assert not poison.overlap(base, base[:0])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.int64, torch.complex128])
def test_bit_equality_is_exact(dtype: torch.dtype) -> None:
    """Equal bits are equal, also in a strided view; one changed element is not."""
    tensor = torch.arange(12).reshape(3, 4).to(dtype)
    assert poison.bit_equal(tensor.T, tensor.T.contiguous())
    other = tensor.clone()
    other[2, 3] += 1
    assert not poison.bit_equal(tensor, other)
    assert not poison.bit_equal(tensor, tensor[:2])


def test_bit_equality_knows_nan_and_signed_zero() -> None:
    """NaN equals itself bit by bit, 0.0 and -0.0 do not."""
    assert poison.bit_equal(torch.tensor([float("nan")]), torch.tensor([float("nan")]))
    assert not poison.bit_equal(torch.tensor([0.0]), torch.tensor([-0.0]))
