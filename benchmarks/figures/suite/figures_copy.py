"""The copy: one kernel that moves a buffer, and, slowed, a buffer larger by a known share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

SPARE = 16
"""A sixteenth of the buffer lies behind it: what a slowed copy moves in addition."""

BYTES_PER_ELEMENT = 2


def copy_of(size_bytes: int, share: float = 0.0) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function that copies the first `size_bytes` and `share` more of its input, and returns the first of them."""
    if not 0 <= share <= 1 / SPARE:
        raise ValueError(f"share is {share}, must be from 0 to 1/{SPARE}")
    wanted = size_bytes // BYTES_PER_ELEMENT
    moved = wanted + round(wanted * share)

    def copy(source: torch.Tensor) -> torch.Tensor:
        import torch

        target = torch.empty(moved, dtype=source.dtype, device=source.device)
        target.copy_(source[:moved])
        return target[:wanted]

    return copy


def source_of(size_bytes: int, device: str) -> Callable[[int], torch.Tensor]:
    """A function seed -> f16 (n + n / SPARE,) random numbers on 'gpu' or 'cpu'."""

    def make(seed: int) -> torch.Tensor:
        import torch

        where = "cpu" if device == "cpu" else "cuda"
        generator = torch.Generator(where).manual_seed(seed)
        count = size_bytes // BYTES_PER_ELEMENT
        return torch.randn(count + count // SPARE, generator=generator, device=where, dtype=torch.float16)

    return make


def reference_of(size_bytes: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """The first `size_bytes` (of f16) of the input, in the input's dtype."""
    return lambda source: source[: size_bytes // BYTES_PER_ELEMENT].clone()
