"""Estimates how long a run still takes, from the times of its finished cases.

Suites differ, and a second look takes a few times as long as a first one, so both are estimated apart. All times are in
seconds; text uses the unit that fits.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.errors import UsageError

WINDOW = 30
"""Number of latest cases of a kind that predict its next ones."""

UNUSUAL = 5.0
"""Cap of a case's time, in medians: a first case that compiled for minutes says little about the next ones."""

FEW = 5
"""Up to this number of cases the first one is left out, because it includes the start of workers: 52 s in one of our
suites, against 2 s for each of the others."""

PROVEN_S, COMPILED_S = 2.0, 0.7
"""Assumed seconds of a case that is only proven, and of a compiled kernel, until the first one has ended."""

LEAST_SAID = 10.0
"""Shortest time that is shown as a number: ending workers and writing results takes seconds, too."""


@dataclass(frozen=True)
class Took:
    """A finished case and the seconds since the one before it finished; `twice` where it got a second look.

    suite   or any name of a kind of similar cases
    """

    suite: str
    seconds: float
    twice: bool = False


@dataclass(frozen=True)
class Left:
    """Seconds until the last case ends; `at_least` where the current case already takes longer than usual."""

    seconds: float
    at_least: bool = False


def estimate_time_left(
    took: Iterable[Took],
    planned: Mapping[str, int],
    since: float,
    step_left: float | None = None,
    priors: Mapping[str, float] | None = None,
) -> Left | None:
    """Returns the seconds until all cases have ended; None if nothing is known to predict them from.

    planned     number of unfinished cases of each suite; the first of them may be running
    since       seconds since the last case ended
    step_left   seconds until the running case ends, if its own progress predicts that
    priors      suite -> assumed seconds per case, used until a case of the suite has ended
    """
    took = tuple(took)
    usual = _Usual.from_cases(took[1:] if len(took) <= FEW else took)
    cases = sum(max(0, count) for count in planned.values())
    if not cases:
        return Left(0.0)
    if usual is None:
        return None if step_left is None or cases > 1 else Left(step_left)
    priors = priors or {}
    whole = sum(max(0, count) * usual.estimate_suite(suite, priors.get(suite)) for suite, count in planned.items())
    this = whole / cases
    if step_left is not None:
        return Left(whole - this + step_left)
    if since <= this:
        return Left(whole - since)
    return Left(whole - this, at_least=True) if cases > 1 else None


def format_time_left(left: Left | None) -> str:
    """Returns 'about 110 s left', 'at least 3 min left', 'less than 10 s left' or 'time left unknown'."""
    if left is None or (left.at_least and left.seconds < LEAST_SAID):
        return "time left unknown"
    if left.seconds < LEAST_SAID:
        return f"less than {LEAST_SAID:.0f} s left"
    return f"{'at least' if left.at_least else 'about'} {format_duration(left.seconds)} left"


@dataclass(frozen=True)
class _Usual:
    """Mean seconds of a case of each suite, weighted by how many of its cases got a second look."""

    suites: Mapping[str, float]

    @classmethod
    def from_cases(cls, took: Iterable[Took]) -> _Usual | None:
        """Returns each suite's mean seconds per case, from the latest WINDOW cases with one look and with two, in the
        proportion of all; None without cases."""
        kinds: dict[str, dict[bool, deque[float]]] = defaultdict(lambda: defaultdict(lambda: deque(maxlen=WINDOW)))
        counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        for case in took:
            kinds[case.suite][case.twice].append(case.seconds)
            counts[case.suite][case.twice] += 1
        means = {
            suite: sum(counts[suite][twice] * _capped_mean(times) for twice, times in by_kind.items())
            / sum(counts[suite])
            for suite, by_kind in kinds.items()
        }
        return cls(means) if means else None

    def estimate_suite(self, suite: str, prior: float | None) -> float:
        """Returns a suite's mean seconds per case, else `prior`; the mean of all suites if it has neither."""
        known = self.suites.get(suite, prior)
        return statistics.fmean(self.suites.values()) if known is None else known


def _capped_mean(times: Sequence[float]) -> float:
    """Returns the mean with every value capped at `UNUSUAL` times the median."""
    most = UNUSUAL * statistics.median(times)
    return statistics.fmean(min(seconds, most) for seconds in times)


SECONDS_UNTIL, MINUTES_UNTIL = 120.0, 120.0
"""Shorter times than these many seconds are shown in seconds; shorter ones than these many minutes in minutes."""

_DURATION = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>s|m|min|h)?")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_seconds(text: str, option: str = "--budget") -> float:
    """Returns '90', '90s', '10m' or '1.5h' in seconds. Raises UsageError naming the option."""
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found["number"]) * _UNITS[found["unit"] or ""] if found else 0.0
    if seconds <= 0:
        raise UsageError(f"{option} {text!r} must be a time above 0, e.g. 90s, 10m or 1h")
    return seconds


def format_duration(seconds: float) -> str:
    """Returns a time in the unit that fits: '85 s', '3 min', '2.5 h'."""
    if seconds < SECONDS_UNTIL:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < MINUTES_UNTIL else f"{minutes / 60:.1f} h"
