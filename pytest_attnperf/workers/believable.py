"""What no worker can have measured. Pure.

A worker may be another tree's or a container's, and what it answers reaches statistics, baselines and results.json: one
NaN that is let in would end the run, or cost the file with every other case's result. `Worker.told` asks here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_attnperf.records import ErrorFigures, Rotation, Samples
from pytest_attnperf.records.pairs import Turn, TurnPlan
from pytest_attnperf.stats.summaries import summarise

US_LEAST, US_MOST = 1e-6, 1e12
"""Microseconds per call: from a picosecond to eleven days. Ratios of such times neither overflow nor vanish."""

MHZ_MOST = 1e6
WHOLE_MOST = 2**63 - 1
"""A larger whole number is none that a file of results holds."""


def unbelievable(answer: Any) -> str:
    """Why an answer cannot be true, in words; '' where it may be. `answer` is a record, or a mapping of records.

    What a check found may be NaN and infinite: a wrong output is.
    """
    return next(_odd_numbers(answer, ""), "") or next(_odd_times(answer), "")


def _odd_numbers(value: Any, where: str) -> Iterator[str]:
    if isinstance(value, float):
        if not math.isfinite(value):
            yield f"{where} is {value}, which nobody can measure"
    elif isinstance(value, int):
        if abs(value) > WHOLE_MOST:
            yield f"{where} has more than 63 bits"
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            if not (isinstance(value, ErrorFigures) and isinstance(item, float)):
                yield from _odd_numbers(item, f"{where}.{field.name}".lstrip("."))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _odd_numbers(item, f"{where}[{str(key)[:40]!r}]")
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for index, item in enumerate(value):
            if not isinstance(item, str):
                yield from _odd_numbers(item, f"{where}[{index}]")


def _odd_times(answer: Any) -> Iterator[str]:
    """Of the records that statistics divide by and take logarithms of."""
    if isinstance(answer, Mapping):
        for item in answer.values():
            yield from _odd_times(item)
    elif isinstance(answer, Samples):
        yield from _odd_us(answer.block_us)
        yield from _odd_clocks(answer.clock_mhz)
        yield from _not_counts(calls_per_block=answer.calls_per_block)
        try:
            summarise(answer)
        except ValueError as error:
            yield str(error)
    elif isinstance(answer, Turn):
        yield from _odd_us([answer.us])
        yield from _odd_clocks([] if answer.clock_mhz is None else [answer.clock_mhz])
    elif isinstance(answer, Rotation):
        yield from _odd_us([answer.same_us])
    elif isinstance(answer, TurnPlan):
        yield from _not_counts(places=answer.places, calls_per_block=answer.calls_per_block)
        yield from _odd_us([answer.call_us])


def _odd_us(times_us: Sequence[float]) -> Iterator[str]:
    limits = f"times are from {US_LEAST:g} to {US_MOST:g} us"
    yield from (f"a time of {us} us per call; {limits}" for us in times_us if not US_LEAST <= us <= US_MOST)


def _odd_clocks(clocks_mhz: Sequence[float]) -> Iterator[str]:
    yield from (f"a clock of {mhz} MHz" for mhz in clocks_mhz if not 0 < mhz <= MHZ_MOST)


def _not_counts(**counts: int) -> Iterator[str]:
    yield from (f"{name} is {count}, and at least 1 must be" for name, count in counts.items() if count < 1)
