"""Facts about a function's inputs that are known late: a definition stored without them is still the same workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_attnperf.backends import Tensors

ADHOC = "adhoc"
"""The family of gated functions. Their ids cannot be parsed back, because they do not contain the functions."""

TENSORS, PLANTS = "tensors", "plants"
"""Fields of a function's definition known once its inputs were made: their description, and who plants them."""

LEARNED = (TENSORS, PLANTS)
"""Fields that definitions of earlier versions lack: there, a missing field means unknown."""


def drop_unrecorded(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """Returns our definition without the fields in LEARNED that theirs lacks, because an earlier version recorded it:
    they must not count as a difference."""
    return {field: value for field, value in ours.items() if field not in LEARNED or field in theirs}


def format_tensors(tensors: Tensors) -> str:
    """Formats shapes, dtypes, and strides if not contiguous: '(64, 32) bfloat16, (64, 32) float32 / (1, 64)'. The
    stride of a dimension of one element has no meaning, and is shown as 0."""
    return ", ".join(map(_format_tensor, tensors))


def _format_tensor(tensor: Any) -> str:
    text = f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
    if tensor.is_contiguous():
        return text
    strides = (stride if size > 1 else 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return f"{text} / {tuple(strides)}"
