"""What is learned of a function's inputs, and that a definition recorded without it is no other workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_attnperf.backends import Tensors

ADHOC = "adhoc"
"""The family of gated functions, whose ids cannot be parsed back: they do not hold the functions."""

TENSORS, PLANTS = "tensors", "plants"
"""Fields of a function's definition that are known once its inputs were made: what they are, and who plants them."""

LEARNED = (TENSORS, PLANTS)
"""Fields that definitions of earlier versions lack: absent is not known."""


def drop_unrecorded(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """Our definition without what theirs was recorded too early to hold."""
    return {field: value for field, value in ours.items() if field not in LEARNED or field in theirs}


def format_tensors(tensors: Tensors) -> str:
    """Shapes and dtypes, and strides where a tensor is not contiguous: '(64, 32) bfloat16, (64, 32) float32 / (1, 64)'.

    The stride of a dimension of one element says nothing, and is 0.
    """
    return ", ".join(map(_format_tensor, tensors))


def _format_tensor(tensor: Any) -> str:
    text = f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
    if tensor.is_contiguous():
        return text
    strides = (stride if size > 1 else 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return f"{text} / {tuple(strides)}"
