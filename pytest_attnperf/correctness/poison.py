"""Memory that a checked call may return is filled with NaN first, so that what was not written shows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pytest_attnperf.workloads.input_memory import as_integers, each_once, memory_span
from pytest_attnperf.workloads.returned import detach_tensor, elements_of, fields_of

if TYPE_CHECKING:
    import torch

_BLOCKS_PER_SIZE = 4
"""How many freed blocks of each output's size are filled: the allocator hands out the most recently freed first, and
a backend may allocate some scratch of the same size before its output."""

_spared: list[torch.Tensor] = []
"""What `fill` leaves alone at the moment."""


def tensors_in(raw: Any) -> Iterator[torch.Tensor]:
    """Every plain tensor in what a backend returned, without its autograd graph, so that it may be written to.

    A tensor, or tuples, lists, dicts and dataclasses of them, nested. Subclasses but parameters and sparse tensors are
    left out: nobody knows which memory is theirs. So are those that torch has yet to negate or conjugate: their bits
    are not the result's. The judge refuses them all.
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
    """Overwrite in place: with NaN; integers with their most extreme value, booleans with their opposite.

    That is the smallest of a signed type, and the largest of an unsigned one: its smallest is what fresh memory holds.
    What is spared at the moment is left as it is.
    """
    import torch

    if any(has_overlap(tensor, spared) for spared in _spared):
        return
    # Inference mode, because a backend may have made its output in it, and such a tensor cannot be changed outside.
    with torch.inference_mode():
        _fill_extreme(each_once(tensor))


@contextlib.contextmanager
def spare_memory(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """`fill` leaves the memory of these alone meanwhile: inputs that a call writes in place, and may return."""
    held = list(tensors)
    _spared.extend(held)
    try:
        yield
    finally:
        del _spared[len(_spared) - len(held) :]


def destroy(tensors: Iterable[torch.Tensor]) -> None:
    """Overwrite inputs in place, as `fill` does, so that whatever still reads them shows.

    Every tensor is overwritten: expanded and overlapping ones, those made in inference mode, leaves that require
    gradients. Booleans that share memory are the opposite of what they were, not twice so.
    """
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
    """Fill freshly freed memory, of the size of outputs like these in these dtypes, with NaN of that dtype.

    A backend that allocates its output with `torch.empty` gets one of these blocks, not the freed copy of an earlier,
    right result.
    """
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
    """The byte that, repeated, is NaN in a floating-point type; -1 or the largest of an integer type, and True.

    All bits set are NaN in IEEE types and in the OCP's fp8. In the fnuz types they are a number, and the only NaN is
    what would be minus zero (arXiv:2206.02915).
    """
    import torch

    if dtype == torch.bool:
        return 0x01
    return 0x80 if dtype in (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz) else 0xFF


def has_overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True when the address ranges of two strided tensors on one device meet."""
    if one.layout != other.layout or one.device != other.device or not one.numel() or not other.numel():
        return False
    (one_start, one_end), (other_start, other_end) = _address_range(one), _address_range(other)
    return one_start < other_end and other_start < one_end


def is_bit_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True when shapes, dtypes and every bit agree; NaN equals itself, and 0.0 is not -0.0."""
    import torch

    if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    if one.dtype == torch.complex128:
        one, other = torch.view_as_real(one), torch.view_as_real(other)
    return torch.equal(as_integers(one), as_integers(other))


def any_bit_differs(ones: list[torch.Tensor], others: list[torch.Tensor]) -> bool | torch.Tensor:
    """Whether `is_bit_equal` is False of any pair; a tensor on the device, which nobody has waited for, where it must
    look at elements."""
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
