"""The settings of a bisection, its result, and the text that a terminal shows of it."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pytest_attnperf.gate.limits import format_percent

PAIRS_MIN = 4
"""Fewest pairs per revision: fewer show too little of their scatter."""

LISTED_MAX = 20
"""Most commits of a range that are listed by name."""


class RevisionSide(str, enum.Enum):
    """Whether a revision is as fast as GOOD, as slow as BAD, certainly between both, or not known. The line between
    fast and slow is halfway."""

    FAST = "fast"
    SLOW = "slow"
    BETWEEN = "part of the way"
    UNCLEAR = "unclear"


class BisectOutcome(str, enum.Enum):
    """What a bisection ended with."""

    CULPRIT = "culprit"
    RANGE = "range"
    NO_SLOWDOWN = "no slowdown"


@dataclass(frozen=True)
class BisectSettings:
    """Settings of a bisection. Raises ValueError for a value outside its range.

    confidence           that all statements about revisions hold at once, from 0.5 to below 1
    threshold_percent    a slowdown between GOOD and BAD that is certainly smaller is not searched for
    pairs_max            most pairs per revision, at least PAIRS_MIN
    """

    confidence: float = 0.99
    threshold_percent: float = 0.5
    pairs_max: int = 32

    def __post_init__(self) -> None:
        if not 0.5 <= self.confidence < 1:
            raise ValueError(f"confidence is {self.confidence:g}, must be at least 0.5 and below 1, e.g. 0.99")
        if not 0 <= self.threshold_percent < math.inf:
            raise ValueError(f"threshold is {self.threshold_percent:g} %, must be 0 or more, e.g. 0.5")
        if self.pairs_max < PAIRS_MIN:
            raise ValueError(
                f"pairs-max is {self.pairs_max}, must be at least {PAIRS_MIN}: fewer show too little of their scatter"
            )


@dataclass(frozen=True)
class MeasuredRevision:
    """One revision compared with GOOD. Ratios above 1 are slower; all intervals of a search hold at once."""

    revision: str
    pairs: int
    ratio: float
    interval: tuple[float, float]
    side: RevisionSide


@dataclass(frozen=True)
class SkippedRevision:
    """A revision that could not be measured."""

    revision: str
    reason: str


@dataclass(frozen=True)
class BisectResult:
    """The result of a bisection at its end, or where it was stopped.

    suspects     the commits that may be the first slow one, oldest first: one for a culprit, none without a slowdown
    end          BAD's own measurement, None before there is one
    detectable   slowdown between GOOD and BAD, as a fraction, that is detected in 99 % of searches
    """

    outcome: BisectOutcome
    good: str
    bad: str
    suspects: tuple[str, ...]
    settings: BisectSettings
    measured: tuple[MeasuredRevision, ...] = ()
    skipped: tuple[SkippedRevision, ...] = ()
    end: MeasuredRevision | None = None
    detectable: float | None = None
    seconds: float = 0.0

    @property
    def culprit(self) -> MeasuredRevision | None:
        """The measurement of the first slow commit; None if several commits are suspect, or there is no slowdown."""
        if self.outcome is not BisectOutcome.CULPRIT:
            return None
        return next(record for record in self.measured if record.revision == self.suspects[0])

    @property
    def pair_count(self) -> int:
        """Number of pairs of all measured revisions."""
        return sum(record.pairs for record in self.measured)

    @property
    def part_way(self) -> tuple[MeasuredRevision, ...]:
        """Revisions certainly unlike both GOOD and BAD: more than one commit contributes. () before BAD is measured."""
        if self.end is None or self.outcome is BisectOutcome.NO_SLOWDOWN:
            return ()
        low, high = self.end.interval
        return tuple(
            record
            for record in self.measured
            if not record.interval[0] <= 1 <= record.interval[1]
            and (record.interval[1] < low or record.interval[0] > high)
        )


Describe = Callable[[str], str]
"""Returns a revision as it is printed."""


def format_step(record: MeasuredRevision | SkippedRevision, left: int, describe: Describe = str) -> str:
    """Returns one line of progress; `left` is how many commits may still be the first slow one."""
    commits = f"{left} commit{'s' * (left != 1)} left"
    if isinstance(record, SkippedRevision):
        return f"{describe(record.revision)}: skipped: {record.reason.partition(chr(10))[0]}; {commits}"
    return (
        f"{describe(record.revision)}: {_format_change(record)}, {record.pairs} pairs: {record.side.value}; {commits}"
    )


def render_result(result: BisectResult, describe: Describe = str) -> list[str]:
    """Returns the lines that the terminal shows of the result: outcome, contributing commits, and skipped revisions."""
    return [
        *_describe_outcome(result, describe),
        *_describe_part_way(result, describe),
        *_list_skipped(result, describe),
    ]


def _describe_outcome(result: BisectResult, describe: Describe) -> Iterator[str]:
    if result.outcome is BisectOutcome.NO_SLOWDOWN and result.end is not None:
        limit = result.detectable
        seen = "" if limit is None else f", smallest detectable slowdown {format_percent(limit)}"
        yield (
            f"no slowdown between {describe(result.good)} and {describe(result.bad)}: "
            f"{_format_change(result.end)}{seen}; "
            f"{_describe_effort(result)}"
        )
        if result.end.interval[0] > 1:
            yield f"it is slower, but by less than {result.settings.threshold_percent:g} % (--threshold)"
    elif result.culprit is not None:
        yield (
            f"first slow commit: {describe(result.culprit.revision)}: {_format_change(result.culprit)} against GOOD, "
            f"{_describe_effort(result)}"
        )
    else:
        yield f"first slow commit: one of these {len(result.suspects)}; {_describe_effort(result)}"
        yield from _list_suspects(result, describe)
        yield from _describe_unclear(result, describe)


def _list_suspects(result: BisectResult, describe: Describe) -> Iterator[str]:
    skipped = {record.revision for record in result.skipped}
    for revision in result.suspects[:LISTED_MAX]:
        yield f"  {describe(revision)}{' (skipped)' if revision in skipped else ''}"
    more = len(result.suspects) - LISTED_MAX
    if more > 0:
        yield f"  and {more} more, up to {describe(result.suspects[-1])}"


def _describe_unclear(result: BisectResult, describe: Describe) -> Iterator[str]:
    """Yields a line for each revision that is neither certainly slow nor fast; advises more pairs if all were taken."""
    for record in result.measured:
        if record.side is not RevisionSide.UNCLEAR:
            continue
        advice = "; raise --pairs-max" if record.pairs >= result.settings.pairs_max else ""
        if record is result.end:
            what = "is too little slower to tell its commits apart"
        else:
            what = "is neither clearly above nor below half the slowdown"
        yield (
            f"not narrowed further: with {record.pairs} pairs {describe(record.revision)} {what}: "
            f"{_format_change(record)}{advice}"
        )


def _describe_part_way(result: BisectResult, describe: Describe) -> Iterator[str]:
    """Yields lines saying that more than one commit changed the time: one for the culprit if it is certainly unlike
    both GOOD and BAD, else one for each revision that is."""
    end = result.end
    if end is None:
        return
    for record in (result.culprit,) if result.culprit in result.part_way else result.part_way:
        low, high = record.interval
        where = f"{_format_change(record)} at {describe(record.revision)}"
        if low > end.interval[1]:
            yield f"at least two changes: {where}, of which {_format_signed(end.ratio - 1)} is left at BAD"
        elif high < 1:
            yield (
                f"at least two changes: {where}, faster than GOOD, before it became "
                f"{_format_signed(end.ratio - 1)} at BAD"
            )
        else:
            yield (
                f"at least two changes: {where}, the rest of {_format_signed(end.ratio - 1)} later: bisect "
                f"from there to BAD"
            )


def _list_skipped(result: BisectResult, describe: Describe) -> Iterator[str]:
    for record in result.skipped:
        yield f"skipped {describe(record.revision)}: {record.reason.partition(chr(10))[0]}"


def _describe_effort(result: BisectResult) -> str:
    revisions = len(result.measured)
    return (
        f"{100 * result.settings.confidence:g} % sure; {revisions} revision{'s' * (revisions != 1)}, "
        f"{result.pair_count} pairs, {result.seconds:.0f} s"
    )


def _format_change(record: MeasuredRevision) -> str:
    low, high = record.interval
    return f"{_format_signed(record.ratio - 1)} ({format_bound(low)}..{format_bound(high)})"


def _format_signed(fraction: float) -> str:
    return f"{format_bound(1 + fraction)} %"


def format_bound(ratio: float) -> str:
    """Returns a ratio new / old as signed per cent without the sign %: '+1.3'; '0.0' has no sign."""
    text = f"{100 * (ratio - 1):+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text
