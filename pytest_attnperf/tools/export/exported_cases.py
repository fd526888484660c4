"""Chooses the cases of results whose time may be given to another program, and names them.

Who reads such a file sees a number and no verdict. So a case is exported only if its result was proven right, and its
time was measured on this tree's code and is possible. A slower case is exported: a chart must show it.
"""

from __future__ import annotations

import enum
import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import TIMED, Verdict
from pytest_attnperf.records.notes import NoteKind, filter_notes
from pytest_attnperf.reports.run.joined import Joined, Shown
from pytest_attnperf.reports.run.tables import compute_gb_s, compute_tflops
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import CaseResult, RunResult

US_LEAST, US_MOST = 1e-6, 1e12
"""Microseconds per call outside of which a figure is no time: a picosecond, eleven days."""

RATE_MOST = 1e30
"""Beyond it a rate is no figure of a device; single precision, which others store, ends at 3e38."""

NAME_LIMIT = 240
"""Characters of a name: with four bytes each and what marks a changed name below Bencher's limit of 1,024 bytes."""

TEXT_LIMIT = 300
HASH_DIGITS = 16
JOIN, CHANGED = " on ", " #"
"""Between case and device; before the hash of a name that had to be changed."""

_MARKUP = str.maketrans(dict.fromkeys("`|<>&\\*", "_"))
"""Letters that would leave a cell of a Markdown table or a page's text."""


class WhyLeftOut(enum.Enum):
    """Why a case has no time to export. The values complete 'N cases ...'."""

    NOT_RIGHT = "not proven right"
    NOT_TIMED = "not timed"
    FOREIGN = "run by code of another tree"
    DOUBTFUL = "with a time that is not believed (SUSPICIOUS, ENVIRONMENT)"
    INTERPRETED = "whose machine code was interpreted"
    NO_TIME = "with a figure that is no time"


@dataclass(frozen=True)
class ExportedRate:
    """A rate of a case in `unit`, such as 'TFLOP/s'; `low` and `high` come from the range of its times, if known."""

    unit: str
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class ExportedCase:
    """A case with a time to export. Times are microseconds per call.

    name             of the case and its device, unique among the exported; plain letters, one line
    device           arch and product, such as 'sm_90/h200'
    median_us        the deciding look's centre
    process_us       medians of the processes of that look
    low_us, high_us  the least and the largest of these; None of a single process
    rates            TFLOP/s and GB/s, those that are known
    """

    name: str
    case: CaseResult
    run: RunResult
    device: str
    median_us: float
    process_us: tuple[float, ...]
    low_us: float | None
    high_us: float | None
    rates: tuple[ExportedRate, ...]


@dataclass(frozen=True)
class Exported:
    """What a format is made from: all cases of the results, those with a time, and how many were left out and why."""

    joined: Joined
    cases: tuple[ExportedCase, ...]
    left_out: Counter[WhyLeftOut]


def choose_cases(joined: Joined) -> Exported:
    """Returns the cases of joined runs that may be exported, in their order."""
    cases: list[ExportedCase] = []
    left_out: Counter[WhyLeftOut] = Counter()
    for shown in joined.cases:
        why = find_reason(shown)
        if why is None:
            cases.append(_make_case(shown))
        else:
            left_out[why] += 1
    return Exported(joined, tuple(cases), left_out)


def require_cases(exported: Exported) -> tuple[ExportedCase, ...]:
    """Returns the cases with a time. Raises UsageError if there are none: an empty file reads as a broken run."""
    if not exported.cases:
        why = f": {describe_left_out(exported.left_out)}" if exported.left_out else ""
        raise UsageError(
            f"no case of these results has a time to export, of {len(exported.joined.cases)}{why}; measure with "
            "pytest --attnperf, or name other RESULTS"
        )
    return exported.cases


def describe_left_out(left_out: Counter[WhyLeftOut]) -> str:
    """Returns '3 not timed, 1 not proven right', the most frequent reason first."""
    return ", ".join(f"{count} {why.value}" for why, count in left_out.most_common())


def find_reason(shown: Shown) -> WhyLeftOut | None:
    """Returns why a case has no time to export; None if it has one."""
    case, device = shown.case, shown.run.device
    if case.verdict in (Verdict.INCORRECT, Verdict.ERROR):
        return WhyLeftOut.NOT_RIGHT
    if case.verdict in (Verdict.SUSPICIOUS, Verdict.ENVIRONMENT):
        return WhyLeftOut.DOUBTFUL
    if case.verdict not in TIMED or case.median_us is None:
        return WhyLeftOut.NOT_TIMED
    if not case.checks or not all(check.right for check in case.checks):
        return WhyLeftOut.NOT_RIGHT
    if filter_notes(case.reasons, NoteKind.FOREIGN):
        return WhyLeftOut.FOREIGN
    if device is not None and device.interpreted and device.kind != "cpu":  # on a CPU torch's own kernels are timed
        return WhyLeftOut.INTERPRETED
    return None if all(map(is_time, (case.median_us, *_list_process_us(case)))) else WhyLeftOut.NO_TIME


def is_time(us: float) -> bool:
    """Returns whether a figure can be microseconds of a call."""
    return math.isfinite(us) and US_LEAST <= us <= US_MOST


def make_name(text: str, context: str = "") -> str:
    """Returns a text of a results file as a name: one line without markup, at most NAME_LIMIT characters and a hash.

    A text that had to be changed ends in a hash of it and `context`, so that two texts never become one name.
    """
    shown = one_line(text, NAME_LIMIT).translate(_MARKUP)
    if shown == text and CHANGED not in text:
        return shown
    digest = hashlib.sha256(f"{context}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{shown}{CHANGED}{digest[:HASH_DIGITS]}"


def list_facts(exported: ExportedCase) -> dict[str, str]:
    """Returns name -> text of what else is known of a case: its verdict, what it was compared with, its run."""
    case, run = exported.case, exported.run
    low, high = case.interval or (None, None)
    timers = {pair.timer for pair in case.pairs} or {process.timer for process in case.second or case.first}
    known = {
        "verdict": case.verdict.value,
        "baseline_us": _format(case.baseline_us),
        "ratio": _format(case.ratio),
        "ratio_low_95": _format(low),
        "ratio_high_95": _format(high),
        "median_us": _format(exported.median_us),
        "processes": str(len(exported.process_us) or ""),
        "timer": " ".join(sorted(timers)),
        "cache_state": case.figures.cache_state if case.figures else "",
        "commit": run.commit,
        "started": run.started,
        "device": exported.device,
    }
    return {name: one_line(text, TEXT_LIMIT) for name, text in known.items() if text}


def list_devices(cases: Sequence[ExportedCase]) -> list[str]:
    """Returns the devices of the cases, each once, in order."""
    return list(dict.fromkeys(one.device for one in cases))


def _make_case(shown: Shown) -> ExportedCase:
    case = shown.case
    assert case.median_us is not None
    process_us = _list_process_us(case)
    spread = (*process_us, case.median_us)
    low, high = (min(spread), max(spread)) if len(process_us) > 1 else (None, None)
    key = str(case.key)
    whole = f"{key}{JOIN}{shown.device}" if shown.device else key
    name = make_name(whole, shown.device)
    if JOIN in key and CHANGED not in name:
        name = make_name(f"{whole}{CHANGED}", shown.device)  # two pairs of case and device may read alike
    return ExportedCase(
        name=name,
        case=case,
        run=shown.run,
        device=one_line(shown.device, TEXT_LIMIT),
        median_us=case.median_us,
        process_us=process_us,
        low_us=low,
        high_us=high,
        rates=_list_rates(case, case.median_us, low, high),
    )


def _list_process_us(case: CaseResult) -> tuple[float, ...]:
    """Returns the medians of the processes that decided: of the pairs with the base side, else of the second look."""
    if case.pairs:
        return tuple(pair.new_us for pair in case.pairs)
    return tuple(process.median_us for process in case.second or case.first)


def _list_rates(
    case: CaseResult, median_us: float, low_us: float | None, high_us: float | None
) -> tuple[ExportedRate, ...]:
    rates = []
    for unit, value in (("TFLOP/s", compute_tflops(case)), ("GB/s", compute_gb_s(case))):
        if value is not None and 0 < value < RATE_MOST:
            low, high = (None if us is None else min(value * median_us / us, RATE_MOST) for us in (high_us, low_us))
            rates.append(ExportedRate(unit, value, low, high))
    return tuple(rates)


def _format(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
