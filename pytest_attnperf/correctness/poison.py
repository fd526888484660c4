"""Memory that a checked call may return is filled with NaN first, so that what was not written shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_BLOCKS_PER_SIZE = 4
"""How many freed blocks of each output's size are filled: the allocator hands out the most recently freed first, and
a backend may allocate some scratch of the same size before its output."""


def tensors_in(raw: Any) -> Iterator[torch.Tensor]:
    """Every plain tensor in what a backend returned: a tensor, or tuples, lists and dicts of them, nested.

    Subclasses and sparse tensors are left out: nobody knows which memory is theirs, and the judge refuses them.
    """
    import torch

    if type(raw) is torch.Tensor and raw.layout == torch.strided:
        yield raw
    elif isinstance(raw, Mapping):
        for value in raw.values():
            yield from tensors_in(value)
    elif isinstance(raw, (tuple, list)):
        for value in raw:
            yield from tensors_in(value)


def fill(tensor: torch.Tensor) -> None:
    """Overwrite with NaN; integers with their smallest value, booleans with their opposite."""
    import torch

    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:  # expanded: all of these are one element, and torch refuses to write it twice
            tensor = tensor.narrow(dim, 0, 1)
    # Inference mode, because a backend may have made its output in it, and such a tensor cannot be changed outside.
    with torch.inference_mode():
        if tensor.is_floating_point() or tensor.is_complex():
            tensor.fill_(float("nan"))
        elif tensor.dtype == torch.bool:
            tensor.logical_not_()
        else:
            tensor.fill_(torch.iinfo(tensor.dtype).min)


def fill_free_blocks(like: Iterable[tuple[torch.Tensor, torch.dtype]]) -> None:
    """Fill freshly freed memory, of the size of outputs like these in these dtypes, with NaN (0xFF in every byte).

    A backend that allocates its output with `torch.empty` gets one of these blocks, not the freed copy of an earlier,
    right result.
    """
    import torch

    held = [
        torch.full((tensor.numel() * dtype.itemsize,), 0xFF, dtype=torch.uint8, device=tensor.device)
        for tensor, dtype in like
        for _ in range(_BLOCKS_PER_SIZE)
    ]
    del held


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True when the address ranges of two strided tensors on one device meet."""
    if one.layout != other.layout or one.device != other.device or not one.numel() or not other.numel():
        return False
    (one_start, one_end), (other_start, other_end) = _range(one), _range(other)
    return one_start < other_end and other_start < one_end


def bit_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True when shapes, dtypes and every bit agree; NaN equals itself, and 0.0 is not -0.0."""
    import torch

    if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    width = integers.get(one.element_size())
    if width is None:
        return torch.equal(torch.view_as_real(one), torch.view_as_real(other))
    return torch.equal(one.view(width), other.view(width))


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + span * tensor.element_size()
