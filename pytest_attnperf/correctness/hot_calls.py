"""Whether calls without a pause compute what calls after one do.

A kernel may notice that it is called in a tight loop, as a timer does it, and give an old result there. So one row of
every input changes before each of several calls in a row, and the last result is compared with that of a call on the
same inputs after a pause.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from pytest_attnperf.correctness import poison
from pytest_attnperf.workloads.input_memory import each_once

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors

CALL_SECONDS_MOST = 0.005
"""Slower calls are not looked at: between two of them lies as much time as between two calls of a judge."""

CALLS = 16
PAUSE_SECONDS = 0.005
ELEMENTS_MOST = 4096
"""Elements that change of each input: so few that changing them is no pause."""

APART = 0.25
"""Results apart by so much of their root mean square are not the same result: beyond any order of summation."""


def problems(tensors: Tensors, skip: Collection[int], call: Callable[[], list[torch.Tensor]]) -> list[str]:
    """What is wrong with the last of several calls in a row. The inputs are afterwards as they were.

    tensors   the inputs that a call reads, at their place in memory
    skip      numbers of those that must not be changed
    call      makes a call, and copies everything that it returned or wrote
    """
    rows = [_row(tensor) for number, tensor in enumerate(tensors) if number not in skip and _is_free(tensor)]
    kept = [row.clone() for row in rows]
    states = [kept, [row.roll(1, -1) for row in kept], [row.flip(-1) for row in kept]]
    try:
        for number in range(CALLS):
            _put(rows, states[2 if number == CALLS - 1 else number % 2])
            hot = call()
        time.sleep(PAUSE_SECONDS)
        cool, again = call(), call()
    finally:
        _put(rows, kept)
    found = []
    for number, results in enumerate(zip(hot, cool, again, strict=True)):
        off, size, noise = _apart(*results)
        if off > APART * size + 4 * noise:
            found.append(
                f"result {number} of a call that comes right after another is off by {off:.3g}, where the rms is "
                f"{size:.3g}: {CALLS} calls in a row, each on other inputs, and a call on the last of these after a "
                f"pause of {PAUSE_SECONDS * 1e3:g} ms disagree; a call must compute its result however often it is made"
            )
    return found


def _is_free(tensor: torch.Tensor) -> bool:
    """Whether any values will do: integers are indices and lengths, and 8-bit types have hardly an operator."""
    return tensor.is_floating_point() and tensor.element_size() > 1 and bool(tensor.numel())


def _row(tensor: torch.Tensor) -> torch.Tensor:
    """A view of the first row, at most ELEMENTS_MOST of it."""
    for dim in range(tensor.dim()):
        tensor = tensor.narrow(dim, 0, min(tensor.shape[dim], ELEMENTS_MOST) if dim == tensor.dim() - 1 else 1)
    return each_once(tensor) if tensor.dim() else tensor.reshape(1)


def _put(rows: list[torch.Tensor], values: list[torch.Tensor]) -> None:
    import torch

    with torch.no_grad():
        for row, value in zip(rows, values, strict=True):
            row.copy_(value)


def _apart(hot: torch.Tensor, cool: torch.Tensor, again: torch.Tensor) -> tuple[float, float, float]:
    """(largest difference, root mean square of the result, largest difference of two calls after a pause)."""
    import torch

    if poison.bit_equal(hot, cool) or not cool.is_floating_point() or hot.shape != cool.shape:
        return 0.0, 1.0, 0.0
    wide = [tensor.to(torch.float32).nan_to_num(0.0, 0.0, 0.0) for tensor in (hot, cool, again)]
    off, noise = float((wide[0] - wide[1]).abs().max()), float((wide[2] - wide[1]).abs().max())
    return off, float(wide[1].square().mean().sqrt()), noise
