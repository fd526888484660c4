"""Copies a case's inputs to other addresses: once, or as often as a cold cache needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_attnperf.backends import Prepared, copy_into
from pytest_attnperf.environment.device_specs import BYTES_PER_MIB
from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure.timers.timer import MAX_CALLS_PER_BLOCK, Call
from pytest_attnperf.workloads.input_memory import copy_tensors, count_occupied_bytes

if TYPE_CHECKING:
    from pytest_attnperf.measure.cold_cache import ColdSize

LEAST = 2
"""One set of inputs larger than the cache would still be partly cached, at its end."""


@dataclass(frozen=True)
class Copies:
    """Copies of a case's inputs at other addresses, without the original inputs; `note` is `ColdSize.note`."""

    others: tuple[Prepared, ...]
    note: str = ""

    @property
    def calls(self) -> tuple[Call, ...]:
        """One callable per copy, which runs the case on that copy's inputs."""
        return tuple(other.run for other in self.others)

    def load_from(self, prepared: Prepared) -> None:
        """Writes the input values of `prepared` into every copy except `prepared` itself."""
        for other in self.others:
            if other is not prepared:
                copy_inputs(prepared, other)


def copy_inputs(source: Prepared, target: Prepared) -> None:
    """Copies the input values of `source` into the memory of `target`'s inputs."""
    import torch

    with torch.no_grad():
        for own, new in zip(target.tensors, source.tensors, strict=True):
            copy_into(own, new)


def make_copies(prepared: Prepared, size: ColdSize, case: str) -> Copies:
    """Copies the case's inputs at least once, and so often that copies and originals hold `size.round_bytes` together.

    case   the case's name, for messages

    Raises CaseFailedError if the inputs are so small that a block could not hold a call on every copy, and whatever the
    allocator raises if memory does not suffice.
    """
    held = count_occupied_bytes(prepared.tensors)
    wanted = count_copies(held, size.round_bytes)
    if wanted is None or wanted > MAX_CALLS_PER_BLOCK:
        raise CaseFailedError(
            f"{case} is too small to be timed cold: its inputs hold {held} bytes, so "
            f"{'no number of' if wanted is None else wanted} copies make the {size.round_bytes / BYTES_PER_MIB:.0f} "
            f"MiB that exceed the last-level cache, and a block holds at most {MAX_CALLS_PER_BLOCK} calls; use a "
            "larger workload, or a hot one"
        )
    return Copies(tuple(copy_prepared(prepared) for _ in range(wanted - 1)), size.note)


def count_copies(held_bytes: int, round_bytes: int) -> int | None:
    """Returns how many copies of `held_bytes` (with the original) fill `round_bytes`, at least 2; None for 0 bytes."""
    return max(LEAST, math.ceil(round_bytes / held_bytes)) if held_bytes else None


def copy_prepared(prepared: Prepared) -> Prepared:
    """Returns `prepared` with its inputs copied to other addresses, in the same memory layout (see `input_memory`).

    `Prepared.call` takes every input as an argument, so nothing is built or compiled again.
    """
    return replace(prepared, tensors=copy_tensors(prepared.tensors), beside=())
