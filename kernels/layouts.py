"""Copies canonical inputs into a backend's own memory, in the order of dimensions that it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors


def heads_first(inputs: Tensors) -> Tensors:
    """Returns copies of the inputs: tensors (B, S, H, D) as contiguous (B, H, S, D); those of fewer dimensions (scales,
    slopes, a bias) in their own layout."""
    import torch

    ordered = (tensor.transpose(1, 2) if tensor.dim() == 4 else tensor for tensor in inputs)
    return tuple(tensor.clone(memory_format=torch.contiguous_format) for tensor in ordered)


def heads_last(out: torch.Tensor) -> torch.Tensor:
    """Returns a (B, S, H, D) view, the canonical layout, of an output (B, H, S, D)."""
    return out.transpose(1, 2)


def own_copies(inputs: Tensors) -> Tensors:
    """Returns copies of the inputs in their canonical layout, so that no other code's writes reach the timed call."""
    return tuple(tensor.clone() for tensor in inputs)
