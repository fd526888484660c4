"""Argument checks of public launchers. An error names the argument, its value and what is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    import torch

FLOATS = ("float32", "float16", "bfloat16")
"""Names of the torch dtypes that the row kernels load and store."""


def require_floats(launcher: str, name: str, tensor: torch.Tensor, *, dims: int) -> None:
    """Raises UsageError unless `tensor` is contiguous, not empty, of `dims` dimensions and fp32, fp16 or bf16."""
    if tensor.dim() != dims or not tensor.numel():
        raise UsageError(
            f"{launcher}: {name} must have {dims} dimensions and at least one element, got shape {tuple(tensor.shape)}"
        )
    if not tensor.is_contiguous():
        raise UsageError(
            f"{launcher}: {name} must be contiguous, got strides {tensor.stride()} of shape {tuple(tensor.shape)}; "
            "call .contiguous() on it"
        )
    if (dtype := str(tensor.dtype).removeprefix("torch.")) not in FLOATS:
        raise UsageError(f"{launcher}: {name} must be one of {', '.join(FLOATS)}, got {dtype}")


def require_same(
    launcher: str,
    name: str,
    tensor: torch.Tensor,
    like: torch.Tensor,
    *,
    shape: Sequence[int] | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Raises UsageError unless `tensor` is contiguous, of this shape and dtype (by default those of `like`), and on the
    device of `like`."""
    wanted = (
        ("shape", tuple(tensor.shape), tuple(like.shape if shape is None else shape)),
        ("dtype", tensor.dtype, like.dtype if dtype is None else dtype),
        ("device", tensor.device, like.device),
    )
    for what, seen, allowed in wanted:
        if seen != allowed:
            raise UsageError(f"{launcher}: {name} must have {what} {allowed}, got {seen}")
    if not tensor.is_contiguous():
        raise UsageError(f"{launcher}: {name} must be contiguous, got strides {tensor.stride()}")
