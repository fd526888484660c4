"""Whether a call is as fast when its inputs change before every call.

Timed inputs repeat, so that a kernel that remembers its results, and returns one when its inputs look familiar, is
right in every check and fast in every block. Only time gives it away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_attnperf.measure import placements
from pytest_attnperf.measure.timers import choose
from pytest_attnperf.records import Rotation
from pytest_attnperf.workloads.input_memory import each_once

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Prepared

BLOCKS = 5
CALLS_PER_BLOCK = 8


def rotate(prepared: Prepared, torch_device: str, block_us: float, call_us: float) -> Rotation:
    """Time calls whose inputs stay, and calls before each of which the largest input is rotated by one element.

    The lowest bit of every second element is flipped on the way: no element stays, and no sum over them, within a block
    or between two. What the change itself takes is measured alone and subtracted.

    call_us   about how long a call takes, so that a block holds several
    """
    import torch

    own = placements.elsewhere(prepared)
    turning = _bits(each_once(max(own.tensors, key=lambda tensor: tensor.numel())))
    flips = torch.randint_like(turning, 0, 2)

    def turn() -> Any:
        return torch.bitwise_xor(turning.roll(1), flips, out=turning)

    def turn_and_run() -> Any:
        turn()
        return own.run()

    length_us = max(block_us, call_us * CALLS_PER_BLOCK)
    same_us = _least_us(own.run, torch_device, length_us)
    turn_us = _least_us(turn, torch_device, length_us)
    return Rotation(same_us, max(0.0, _least_us(turn_and_run, torch_device, length_us) - turn_us), turn_us)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's memory as integers of its elements' width: not every dtype can be rotated."""
    import torch

    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])


def _least_us(call: Callable[[], Any], torch_device: str, block_us: float) -> float:
    """The fastest of a few blocks: other jobs on the machine only make a block slower, and would look like a memory."""
    timer = choose(torch_device, call, block_us)
    try:
        return min(timer.measure(BLOCKS))
    finally:
        timer.close()
