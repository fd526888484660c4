"""Whether a call is as fast when its inputs change before every call.

Timed inputs repeat, so that a kernel that remembers its results, or returns one when its inputs look familiar, is
right in every check and fast in every block. Only time gives it away.
"""

from __future__ import annotations

import contextlib
from statistics import median
from typing import TYPE_CHECKING, Any

from pytest_attnperf.measure.timers import choose
from pytest_attnperf.measure.turning import Turning
from pytest_attnperf.records import Rotation
from pytest_attnperf.workloads.input_memory import each_once

if TYPE_CHECKING:
    from pytest_attnperf.backends import Prepared

ROUNDS = 7
CALLS_PER_BLOCK = 8


def rotate(prepared: Prepared, torch_device: str, block_us: float, call_us: float) -> Rotation:
    """Time calls whose inputs stay, and calls before each of which every floating-point input changes (`turning`).

    What the change itself takes is measured alone and subtracted. The three take turns, so that a machine that is busy
    for a while is so for all of them. The inputs change where they were timed, because a kernel may remember results
    for that memory only; afterwards they are as they were.

    call_us   about how long a call takes, so that a block holds several
    """
    inputs = [each_once(tensor.detach()) for tensor in prepared.tensors]
    kept = [tensor.clone() for tensor in inputs]
    try:
        return _rotate(prepared, torch_device, block_us, call_us)
    finally:
        for tensor, value in zip(inputs, kept, strict=True):
            tensor.copy_(value)


def _rotate(prepared: Prepared, torch_device: str, block_us: float, call_us: float) -> Rotation:
    turn = Turning(prepared.tensors, call_us)

    def turn_and_run() -> Any:
        turn()
        return prepared.run()

    length_us = max(block_us, call_us * CALLS_PER_BLOCK)
    with contextlib.ExitStack() as stack:
        timers = [choose(torch_device, call, length_us) for call in (prepared.run, turn, turn_and_run)]
        for timer in timers:
            stack.callback(timer.close)
        rounds = [[timer.measure(1)[0] for timer in timers] for _ in range(ROUNDS)]
    same, turns, both = (list(times) for times in zip(*rounds, strict=True))
    rotating_us = median(both) - median(turns)
    return Rotation(
        same_us=median(same),
        rotating_us=max(0.0, rotating_us),
        turn_us=median(turns),
        noise_us=max(0.0, rotating_us) - max(0.0, min(both) - max(turns)),
    )
