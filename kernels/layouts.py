"""Canonical inputs in memory of a backend's own, and in the order of dimensions that it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors


def heads_first(inputs: Tensors) -> Tensors:
    """(B, S, H, D) to contiguous (B, H, S, D), each in its own memory; scales, slopes and a bias are copied."""
    import torch

    ordered = (tensor.transpose(1, 2) if tensor.dim() == 4 else tensor for tensor in inputs)
    return tuple(tensor.clone(memory_format=torch.contiguous_format) for tensor in ordered)


def heads_last(out: torch.Tensor) -> torch.Tensor:
    """(B, H, S, D) to the canonical (B, S, H, D), a view."""
    return out.transpose(1, 2)


def own_copies(inputs: Tensors) -> Tensors:
    """The canonical layout in memory of the backend's own, so that nobody else's writes reach the timed call."""
    return tuple(tensor.clone() for tensor in inputs)
