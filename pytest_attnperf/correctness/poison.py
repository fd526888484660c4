"""Fills memory that a checked call may return with NaN first, so that elements that were not written are detected."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.workloads.input_memory import as_integers, each_once, memory_span
from pytest_attnperf.workloads.returned import detach_tensor, elements_of, fields_of

if TYPE_CHECKING:
    import torch

_BLOCKS_PER_SIZE = 4
"""How many freed blocks of each output's size are filled: the allocator reuses the most recently freed first, and a
backend may allocate some scratch of the same size before its output."""

_spared: list[torch.Tensor] = []
"""Tensors that `fill` skips at the moment."""


def tensors_in(raw: Any) -> Iterator[torch.Tensor]:
    """Yields every plain tensor in what a backend returned, without its autograd graph, so that it may be written to.

    `raw` is a tensor, or nested tuples, lists, dicts and dataclasses of tensors. Subclasses except parameters, and
    sparse tensors, are skipped: their memory is not known. So are tensors that torch has yet to negate or conjugate:
    their bits are not the result's. The judge rejects all of these.
    """
    import torch

    raw = detach_tensor(raw)
    parts = fields_of(raw)
    if type(raw) is torch.Tensor and raw.layout == torch.strided:
        if not (raw.is_neg() or raw.is_conj()):
            yield raw
    elif parts is not None:
        for value in parts.values():
            yield from tensors_in(value)
    elif isinstance(raw, (tuple, list)):
        for value in elements_of(raw):
            yield from tensors_in(value)


def fill(tensor: torch.Tensor) -> None:
    """Overwrites a tensor in place: floats with NaN, integers with their most extreme value, booleans with their
    opposite. The extreme is the smallest of a signed type, and the largest of an unsigned one, because fresh memory
    often holds 0. Tensors that overlap memory of `spare_memory` are not changed."""
    import torch

    if any(has_overlap(tensor, spared) for spared in _spared):
        return
    # Inference mode, because a backend may have made its output in it, and such a tensor cannot be changed outside.
    with torch.inference_mode():
        _fill_extreme(each_once(tensor))


@contextlib.contextmanager
def spare_memory(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Makes `fill` skip the memory of these tensors inside the block: inputs that a call writes in place."""
    held = list(tensors)
    _spared.extend(held)
    try:
        yield
    finally:
        del _spared[len(_spared) - len(held) :]


def destroy(tensors: Iterable[torch.Tensor]) -> None:
    """Overwrites inputs in place, as `fill` does, so that a later read of them is detected. Every tensor is
    overwritten: expanded and overlapping ones, those made in inference mode, leaves that require gradients. Booleans
    that share memory are inverted once, not twice."""
    import torch

    with torch.inference_mode():
        flat = [each_once(tensor) for tensor in tensors]
        opposites = [tensor.logical_not() if tensor.dtype == torch.bool else None for tensor in flat]
        for tensor, opposite in zip(flat, opposites, strict=True):
            if opposite is None:
                _fill_extreme(tensor)
            else:
                tensor.copy_(opposite)


def fill_free_blocks(like: Iterable[tuple[torch.Tensor, torch.dtype]]) -> None:
    """Allocates and frees _BLOCKS_PER_SIZE blocks of NaN for each (tensor, dtype), of the tensor's length in that
    dtype. A backend that allocates its output with `torch.empty` gets one of these blocks, not the freed copy of an
    earlier, right result."""
    import torch

    held = [
        torch.full((tensor.numel() * dtype.itemsize,), _poison_byte(dtype), dtype=torch.uint8, device=tensor.device)
        for tensor, dtype in like
        for _ in range(_BLOCKS_PER_SIZE)
    ]
    del held


def _fill_extreme(tensor: torch.Tensor) -> None:
    import torch

    if tensor.is_floating_point() or tensor.is_complex():
        tensor.fill_(float("nan"))
    elif tensor.dtype == torch.bool:
        tensor.logical_not_()
    else:
        limits = torch.iinfo(tensor.dtype)
        tensor.fill_(limits.min or limits.max)


def _poison_byte(dtype: torch.dtype) -> int:
    """Returns the byte that, repeated, is NaN in a floating-point dtype; True for bool; for integers -1, or the largest
    unsigned. In IEEE types and in the OCP's fp8, all bits set are NaN. In the fnuz types they are a number, and the
    only NaN has the bits of minus zero (arXiv:2206.02915)."""
    import torch

    if dtype == torch.bool:
        return 0x01
    return 0x80 if dtype in (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz) else 0xFF


def has_overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns True when the address ranges of two strided tensors on one device overlap."""
    if one.layout != other.layout or one.device != other.device or not one.numel() or not other.numel():
        return False
    (one_start, one_end), (other_start, other_end) = _address_range(one), _address_range(other)
    return one_start < other_end and other_start < one_end


def is_bit_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns True when shapes, dtypes and every bit agree; NaN equals itself, and 0.0 is not -0.0."""
    import torch

    if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    if one.dtype == torch.complex128:
        one, other = torch.view_as_real(one), torch.view_as_real(other)
    return torch.equal(as_integers(one), as_integers(other))


@dataclass(frozen=True)
class BitDifference:
    """How two tensors of one shape and dtype differ.

    ulps    the largest difference of two elements in units in the last place of the dtype, of integers in ones. At
            least 1 where they differ; inf for NaN beside a number. Every NaN equals every other
    index   the element that differs most
    count   elements that differ
    """

    ulps: float
    index: tuple[int, ...]
    count: int


def find_bit_difference(one: torch.Tensor, other: torch.Tensor) -> BitDifference | None:
    """Returns how two tensors of one shape and dtype differ; None if every element has the same bits, or is NaN in
    both."""
    import torch

    if is_bit_equal(one, other) or not one.numel():
        return None
    if one.is_complex():
        one, other = torch.view_as_real(one), torch.view_as_real(other)
    apart = (_order_values(one) - _order_values(other)).abs().double()
    apart[as_integers(one.contiguous()).ne(as_integers(other.contiguous())) & (apart == 0)] = 1.0  # 0.0 is not -0.0
    if one.is_floating_point():
        lost, also = ((tensor.float() if tensor.element_size() == 1 else tensor).isnan() for tensor in (one, other))
        apart[lost & also] = 0.0
        apart[lost ^ also] = float("inf")
    worst = int(apart.argmax())
    if not (ulps := float(apart.flatten()[worst])):
        return None
    place = torch.unravel_index(torch.tensor(worst), one.shape)
    return BitDifference(ulps, tuple(map(int, place)), int(apart.count_nonzero()))


def _order_values(tensor: torch.Tensor) -> torch.Tensor:
    """Returns integers in the order of the elements: neighbouring floating-point numbers differ by 1, and both zeros
    are 0. Of 8 bytes they are fp64, and differ by about as much."""
    import torch

    signed = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    if not tensor.is_floating_point():
        return tensor.to(torch.float64 if tensor.element_size() == 8 else torch.int64)
    bits = tensor.contiguous().view(signed).to(torch.int64)
    ordered = torch.where(bits < 0, torch.iinfo(signed).min - bits, bits)
    return ordered.double() if tensor.element_size() == 8 else ordered


def any_bit_differs(ones: list[torch.Tensor], others: list[torch.Tensor]) -> bool | torch.Tensor:
    """Returns whether `is_bit_equal` is False for any pair of `ones` and `others`. The result is a bool, or, where
    elements must be compared, a tensor of shape () on the device, which is not waited for."""
    import torch

    differs = []
    for one, other in zip(ones, others, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
            return True
        if one.dtype == torch.complex128:
            one, other = torch.view_as_real(one), torch.view_as_real(other)
        differs.append(as_integers(one).ne(as_integers(other)).any())
    # Some kernels return a seed or a flag on the CPU beside their results.
    where = next((flag.device for flag in differs if flag.device.type != "cpu"), None)
    return torch.stack([flag.to(where) for flag in differs]).any() if differs else False


def _address_range(tensor: torch.Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor.data_ptr() + memory_span(tensor) * tensor.element_size()
