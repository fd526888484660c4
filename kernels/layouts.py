"""Copies canonical inputs into a backend's own memory, in the order of dimensions that it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors


def heads_first(inputs: Tensors) -> Tensors:
    """Copies (B, S, H, D) to contiguous (B, H, S, D); scales, slopes and a bias are copied unchanged."""
    import torch

    ordered = (tensor.transpose(1, 2) if tensor.dim() == 4 else tensor for tensor in inputs)
    return tuple(tensor.clone(memory_format=torch.contiguous_format) for tensor in ordered)


def heads_last(out: torch.Tensor) -> torch.Tensor:
    """Returns (B, H, S, D) as a view in the canonical (B, S, H, D)."""
    return out.transpose(1, 2)


def own_copies(inputs: Tensors) -> Tensors:
    """Copies the inputs in the canonical layout, so that no other code's writes reach the timed call."""
    return tuple(tensor.clone() for tensor in inputs)
