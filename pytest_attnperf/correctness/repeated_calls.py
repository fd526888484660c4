"""Checks many calls on the same inputs, because a race is wrong only sometimes, and calls without a pause.

On a GPU several calls are queued before the host waits, and the device compares each result with an earlier right one.
So the calls take little longer than their kernels. Results whose bits differ are read and judged.

A kernel may detect that it is called in a tight loop, as a timer does, and return an old result there. So one row of
every input changes before each of several calls in a row, and the last result is compared with that of a call on the
same inputs after a pause.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_attnperf.correctness import poison
from pytest_attnperf.workloads.input_memory import each_once

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors


@dataclass(frozen=True)
class CallRepeats:
    """How many calls are made on the same inputs.

    calls_least     as many, if time allows
    seconds_least   go on for this long, however many calls it takes
    seconds_most    no further call is made after this time, even if fewer than `calls_least` were made
    """

    calls_least: int
    seconds_least: float
    seconds_most: float


USUAL = CallRepeats(40, 0.004, 0.06)
"""Detects a fault of 1 call in 20 in 7 of 8 processes."""

AHEAD, AHEAD_BYTES = 8, 2**28
"""Results that may wait for comparison at once: their number, and their bytes together."""

REPLAYS = 2
"""How often a whole block is replayed, of which only the last result can be read; the other calls are made alone."""

Call = Callable[[], Any]


@dataclass
class RepeatedCall:
    """One call: what it returned, copies of what it wrote, and whether it differs from a right result."""

    number: int
    raw: Any
    written: dict[int, torch.Tensor]
    unlike: bool | torch.Tensor

    @property
    def tensors(self) -> list[torch.Tensor]:
        """All tensors that the call returned, then the copies of what it wrote in place."""
        return [*poison.tensors_in(self.raw), *self.written.values()]


@dataclass
class RepeatedCalls:
    """Makes calls, and judges those whose results differ from an earlier right one.

    make       makes one call; returns its result, and copies of what it wrote
    judge      returns the problems of a call, given its number; empty if it is right
    on_gpu     whether calls can be queued
    repeats    how many calls to make
    problems   the problems of each wrong call
    """

    make: Callable[[Call, int], tuple[Any, dict[int, torch.Tensor]]]
    judge: Callable[[int, Any, dict[int, torch.Tensor]], tuple[str, ...]]
    on_gpu: bool
    repeats: CallRepeats = USUAL
    calls: int = 0
    problems: list[tuple[str, ...]] = field(default_factory=list)
    _right: list[torch.Tensor] | None = None
    _shared: bool = False

    def repeat(self, run: Call, single: Call | None = None) -> None:
        """Makes calls of `run` for some ms; fills `calls` and `problems`. With `single`, `run` is a whole block of
        calls: it is called REPLAYS times, and then `single` instead."""
        started, many = time.perf_counter(), self.repeats
        while (spent := time.perf_counter() - started) < many.seconds_least or (
            self.calls < many.calls_least and spent < many.seconds_most
        ):
            replay = single is not None and self.calls < REPLAYS
            ahead = 1 if replay else self._count_ahead()
            for made in self._make_some(run if replay or single is None else single, ahead):
                self._look_at(made)

    def _make_some(self, run: Call, ahead: int) -> list[RepeatedCall]:
        """Makes up to `ahead` calls before it waits for the device; returns those whose results were not overwritten.
        Once two calls share memory for their results, it makes one at a time."""
        held: list[RepeatedCall] = []
        for _ in range(ahead):
            made = self._make_one(run)
            meeting = [one for one in held if _has_common_memory(one, made)]
            self._shared = self._shared or bool(meeting)
            held = [one for one in held if one not in meeting] + [made]
            if self._shared:
                break
        return list(_wait_for(held))

    def _make_one(self, run: Call) -> RepeatedCall:
        raw, written = self.make(run, self.calls)
        self.calls += 1
        made = RepeatedCall(self.calls, raw, written, True)
        if self._right is not None:
            made.unlike = self._is_unlike(made.tensors, self._right)
        return made

    def _is_unlike(self, again: list[torch.Tensor], right: list[torch.Tensor]) -> bool | torch.Tensor:
        if len(again) != len(right):
            return True
        if not self.on_gpu:
            return not all(map(poison.is_bit_equal, right, again))
        return poison.any_bit_differs(right, again)

    def _count_ahead(self) -> int:
        """Returns how many calls may be made before their results are compared; 1 on a CPU, before the first right
        result, after a wrong one, and where calls share memory."""
        if self._right is None or not self.on_gpu or self._shared or self.problems:
            return 1
        size = sum(tensor.numel() * tensor.element_size() for tensor in self._right)
        return max(1, min(AHEAD, AHEAD_BYTES // max(1, size)))

    def _look_at(self, made: RepeatedCall) -> None:
        if not made.unlike:
            return
        problems = self.judge(made.number, made.raw, made.written)
        self.problems += [problems] if problems else []
        if self._right is None and not problems:
            self._right = [tensor.clone() for tensor in made.tensors]


def _has_common_memory(one: RepeatedCall, other: RepeatedCall) -> bool:
    """Returns whether the results of two calls share memory."""
    return any(poison.has_overlap(a, b) for a in poison.tensors_in(one.raw) for b in poison.tensors_in(other.raw))


def _wait_for(held: list[RepeatedCall]) -> Iterator[RepeatedCall]:
    """Yields these calls, with `unlike` (whether its results differ from a right call's) as a bool in each. All such
    flags are read from the device in one transfer."""
    import torch

    waiting = [made for made in held if isinstance(made.unlike, torch.Tensor)]
    if waiting:
        flags = torch.stack([made.unlike for made in waiting if isinstance(made.unlike, torch.Tensor)]).tolist()
        for made, unlike in zip(waiting, flags, strict=True):
            made.unlike = bool(unlike)
    yield from held


CALL_SECONDS_MOST = 0.005
"""Slower calls are not checked: the time between two of them is as long as that between two calls of a judge."""

CALLS = 16
PAUSE_SECONDS = 0.005
ELEMENTS_MOST = 4096
"""Elements of each input that change: so few that changing them is no pause."""

APART = 0.25
"""Results that differ by more than this share of their rms are different, whatever the order of summation."""


def compare_hot_calls(tensors: Tensors, skip: Collection[int], call: Callable[[], list[torch.Tensor]]) -> list[str]:
    """Makes CALLS calls in a row, each on changed inputs, then, after a pause, two calls on the inputs of the last.
    Returns, in words, each result in which the last call of the row differs from these two. Restores the inputs.

    tensors   the inputs that a call reads, at their place in memory
    skip      numbers of the inputs that must not be changed
    call      makes a call, and returns copies of everything that it returned or wrote
    """
    rows = [_view_row(tensor) for number, tensor in enumerate(tensors) if number not in skip and _is_free(tensor)]
    kept = [row.clone() for row in rows]
    states = [kept, [row.roll(1, -1) for row in kept], [row.flip(-1) for row in kept]]
    try:
        for number in range(CALLS):
            _write_rows(rows, states[2 if number == CALLS - 1 else number % 2])
            hot = call()
        time.sleep(PAUSE_SECONDS)
        cool, again = call(), call()
    finally:
        _write_rows(rows, kept)
    return [
        f"result {number} of a call that comes right after another is off by {off:.3g}, where the rms is "
        f"{size:.3g}: {CALLS} calls in a row, each on other inputs, and a call on the last of these after a "
        f"pause of {PAUSE_SECONDS * 1e3:g} ms disagree; a call must compute its result however often it is made"
        for number, off, size in list_apart(hot, cool, again)
    ]


def list_apart(
    hot: list[torch.Tensor], cool: list[torch.Tensor], again: list[torch.Tensor]
) -> list[tuple[int, float, float]]:
    """Returns (number, largest error, root mean square) of each result of `hot` that is another than that of `cool`,
    whatever the order of summation. `cool` and `again` are results of two equal calls, which show how far these may
    differ."""
    found = []
    for number, results in enumerate(zip(hot, cool, again, strict=True)):
        off, size, noise = _measure_difference(*results)
        if off > APART * size + 4 * noise:
            found.append((number, off, size))
    return found


def _is_free(tensor: torch.Tensor) -> bool:
    """Returns whether an input may be given other values: floating point of two bytes or more, as integers may be
    indices and 8-bit types have few operators."""
    return tensor.is_floating_point() and tensor.element_size() > 1 and bool(tensor.numel())


def _view_row(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a view of at most ELEMENTS_MOST elements of the first row."""
    for dim in range(tensor.dim()):
        tensor = tensor.narrow(dim, 0, min(tensor.shape[dim], ELEMENTS_MOST) if dim == tensor.dim() - 1 else 1)
    return each_once(tensor) if tensor.dim() else tensor.reshape(1)


def _write_rows(rows: list[torch.Tensor], values: list[torch.Tensor]) -> None:
    import torch

    with torch.no_grad():
        for row, value in zip(rows, values, strict=True):
            row.copy_(value)


def _measure_difference(hot: torch.Tensor, cool: torch.Tensor, again: torch.Tensor) -> tuple[float, float, float]:
    """Returns (largest |hot - cool|, root mean square of `cool`, largest |again - cool|); `cool` and `again` are
    results of two calls after a pause. (0, 1, 0) if the bits agree or values cannot be compared."""
    import torch

    if poison.is_bit_equal(hot, cool) or not cool.is_floating_point() or hot.shape != cool.shape:
        return 0.0, 1.0, 0.0
    wide = [tensor.to(torch.float32).nan_to_num(0.0, 0.0, 0.0) for tensor in (hot, cool, again)]
    off, noise = float((wide[0] - wide[1]).abs().max()), float((wide[2] - wide[1]).abs().max())
    return off, float(wide[1].square().mean().sqrt()), noise
