"""How far off fp32 sums and exponentials may be for reasons that the result of one operator does not show.

A reference that calls `torch.softmax` sums in blocks and subtracts the maximum first. A kernel may add one term after
the other, or compute exp(x - log-sum-exp), as every flash attention does on its way back. Both are honest.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

ORDER_STEP = 2.0**-24
"""Times the square root of how many terms are added: one after the other, n positive ones are off by 0.24 times as much
(root mean square), and this is the most of a number that is drawn evenly."""

EXPONENT_STEP = 2.0**-23
"""Of the largest exponent of a row: x and the log-sum-exp are rounded before they are subtracted."""

_SUMS = re.compile("sum|mean|logsumexp|linalg_vector_norm|norm|var.*|std.*|prod|nansum")
_ALONG = re.compile("_softmax|_log_softmax|cumsum|logcumsumexp|cumprod")
PRODUCTS = {"mm", "bmm", "mv", "dot", "addmm", "baddbmm", "addmv"}
"""Operators whose last two arguments are matrices or vectors that they multiply."""


def order_step(name: str, args: tuple[Any, ...], result: Any) -> float:
    """What the order of summation may move a result of this operator of torch by, relative to its size."""
    terms = _terms(name, args, result)
    return ORDER_STEP * math.sqrt(terms) if terms > 1 else 0.0


def exponent_error(name: str, args: tuple[Any, ...], result: torch.Tensor) -> torch.Tensor | None:
    """How far each result of a softmax may be off because its exponents were rounded; None of other operators."""
    if name not in ("_softmax", "_log_softmax"):
        return None
    scores: torch.Tensor = args[0]
    largest = scores.abs().nan_to_num(0.0, 0.0, 0.0).amax(args[1], keepdim=True)
    # A logarithm is off by what its exponent is, a weight by as much of itself.
    return EXPONENT_STEP * largest * (1.0 if name == "_log_softmax" else result)


def _terms(name: str, args: tuple[Any, ...], result: Any) -> int:
    """How many terms are added for one element of the result; 1 where none are, or nobody knows."""
    import torch

    if not args or not isinstance(args[0], torch.Tensor) or not args[0].dim():
        return 1
    first = args[0]
    if name in PRODUCTS:
        return int(args[-1].shape[-2] if args[-1].dim() > 1 else args[-1].shape[-1])
    if _ALONG.fullmatch(name):
        return int(first.shape[args[1]])
    if name == "native_layer_norm":
        return math.prod(args[1])
    if name == "convolution":
        return int(args[1][0].numel())
    if name.startswith("_scaled_dot_product"):
        return int(args[1].shape[-2])
    parts = [one for one in (result if isinstance(result, tuple) else (result,)) if isinstance(one, torch.Tensor)]
    least = min((one.numel() for one in parts if one.numel()), default=0)
    return first.numel() // least if least and (_SUMS.fullmatch(name) or "norm" in name) else 1
