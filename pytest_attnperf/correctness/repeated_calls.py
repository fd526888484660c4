"""Whether every one of many calls on the same inputs is right: a race is wrong now and then.

On a GPU several calls are queued before anybody waits, and the device compares each with a right result before it: so
the calls take hardly longer than their kernels. Results whose bits differ are read and judged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_attnperf.correctness import poison

if TYPE_CHECKING:
    import torch

LEAST, SECONDS_LEAST = 40, 0.004
"""Repeated calls, and more where they take less: a fault of 1 call in 20 is found in 7 of 8 processes."""

SECONDS_MOST = 0.06
"""After which no further call is made, however few they were."""

AHEAD, AHEAD_BYTES = 8, 2**28
"""Results that wait for being compared at once: so many, of so many bytes together."""

REPLAYS = 2
"""How often a whole block is repeated, of which only the last result is seen; the other calls are made alone."""

Call = Callable[[], Any]


@dataclass
class Made:
    """A call that was made: what it returned, copies of what it wrote, and whether that is unlike a right result."""

    number: int
    raw: Any
    written: dict[int, torch.Tensor]
    unlike: bool | torch.Tensor

    @property
    def tensors(self) -> list[torch.Tensor]:
        """All that it returned or wrote."""
        return [*poison.tensors_in(self.raw), *self.written.values()]


@dataclass
class RepeatedCalls:
    """Makes calls, and judges those whose results are unlike a right one before them.

    make       makes one call; returns what it returned, and copies of what it wrote
    judge      what is wrong with a call of that number; nothing where it is right
    on_gpu     whether calls can be queued
    problems   of each wrong call
    """

    make: Callable[[Call, int], tuple[Any, dict[int, torch.Tensor]]]
    judge: Callable[[int, Any, dict[int, torch.Tensor]], tuple[str, ...]]
    on_gpu: bool
    calls: int = 0
    problems: list[tuple[str, ...]] = field(default_factory=list)
    _right: list[torch.Tensor] | None = None
    _shared: bool = False

    def repeat(self, run: Call, single: Call | None = None) -> None:
        """Call `run` again and again, or, where `single` is one call of it, a few times and then that."""
        started = time.perf_counter()
        while (spent := time.perf_counter() - started) < SECONDS_LEAST or (self.calls < LEAST and spent < SECONDS_MOST):
            replay = single is not None and self.calls < REPLAYS
            ahead = 1 if replay else self._ahead()
            for made in self._make_some(run if replay or single is None else single, ahead):
                self._look_at(made)

    def _make_some(self, run: Call, ahead: int) -> list[Made]:
        """Make one call, or several before any is waited for; one whose memory a later one uses is left out."""
        held: list[Made] = []
        for _ in range(ahead):
            made = self._make_one(run)
            meeting = [one for one in held if _meet(one, made)]
            self._shared = self._shared or bool(meeting)
            held = [one for one in held if one not in meeting] + [made]
            if self._shared:
                break
        return list(_waited_for(held))

    def _make_one(self, run: Call) -> Made:
        raw, written = self.make(run, self.calls)
        self.calls += 1
        made = Made(self.calls, raw, written, True)
        if self._right is not None:
            made.unlike = self._is_unlike(made.tensors, self._right)
        return made

    def _is_unlike(self, again: list[torch.Tensor], right: list[torch.Tensor]) -> bool | torch.Tensor:
        if len(again) != len(right):
            return True
        if not self.on_gpu:
            return not all(map(poison.bit_equal, right, again))
        return poison.any_bit_differs(right, again)

    def _ahead(self) -> int:
        """How many calls to make before their results are looked at."""
        if self._right is None or not self.on_gpu or self._shared or self.problems:
            return 1
        size = sum(tensor.numel() * tensor.element_size() for tensor in self._right)
        return max(1, min(AHEAD, AHEAD_BYTES // max(1, size)))

    def _look_at(self, made: Made) -> None:
        if not made.unlike:
            return
        problems = self.judge(made.number, made.raw, made.written)
        self.problems += [problems] if problems else []
        if self._right is None and not problems:
            self._right = [tensor.clone() for tensor in made.tensors]


def _meet(one: Made, other: Made) -> bool:
    """Whether two calls have given results in the same memory."""
    return any(poison.overlap(a, b) for a in poison.tensors_in(one.raw) for b in poison.tensors_in(other.raw))


def _waited_for(held: list[Made]) -> Iterator[Made]:
    """Those calls, once the device has said of each whether it is unlike; it is asked once."""
    import torch

    waiting = [made for made in held if isinstance(made.unlike, torch.Tensor)]
    if waiting:
        flags = torch.stack([made.unlike for made in waiting if isinstance(made.unlike, torch.Tensor)]).tolist()
        for made, unlike in zip(waiting, flags, strict=True):
            made.unlike = bool(unlike)
    yield from held
