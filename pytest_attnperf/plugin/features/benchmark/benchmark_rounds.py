"""What of a case's result pytest-benchmark is given, and the clock by which it times just that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_attnperf.records import Verdict
from pytest_attnperf.records.notes import NoteKind, of_kind
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import CaseResult

NEVER_GIVEN = frozenset(
    {Verdict.SLOWER, Verdict.WORSE, Verdict.INCORRECT, Verdict.SUSPICIOUS, Verdict.ERROR, Verdict.UNSUPPORTED}
)
"""Whatever `fail_on` says: `--benchmark-autosave` stores before it compares, and the next comparison would be with the
slower code."""

_OF_A_CASE = frozenset({"timer", "cache_state"})
"""Fields of a fingerprint that say nothing of the machine."""

_NAME_LIMIT = 120
"""Characters of a group: `--benchmark-histogram` names a file after it."""


@dataclass(frozen=True)
class Rounds:
    """What pytest-benchmark is given of a case.

    seconds     per call, one round each, in measured order, process by process
    what        'blocks' of the processes, or 'process medians', where blocks of an interleaved look are not kept
    processes   who measured them, as plain data: name, median, and how many of the rounds
    """

    seconds: tuple[float, ...]
    what: str
    processes: tuple[dict[str, Any], ...]


class ReplayClock:
    """A timer that reads what it was set to. pytest-benchmark stores its name with each benchmark."""

    __name__ = "attnperf_device_clock"

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


def may_be_stored(result: CaseResult) -> bool:
    """Whether a case was proven right, did not fail, and its time is that of this tree's code."""
    right = bool(result.checks) and all(check.right for check in result.checks)
    foreign = bool(of_kind(result.reasons, NoteKind.FOREIGN))
    return right and not result.fails and result.verdict not in NEVER_GIVEN and not foreign


def rounds_of(result: CaseResult) -> Rounds | None:
    """The deciding look's durations; None where nothing was measured.

    Processes are the independent unit, and our verdict rests on their medians alone. Rounds are their blocks all the
    same, because that is what a reader of pytest-benchmark takes rounds for: repetitions, whose spread is that of one
    sitting. Which process made which is in `processes`, so that the medians can be had from the file.
    """
    if result.pairs:
        seconds = [pair.new_us / 1e6 for pair in result.pairs]
        processes = [{"process": p.new_process, "median_us": p.new_us, "rounds": 1} for p in result.pairs]
    else:
        look = result.second or result.first
        seconds = [us / 1e6 for process in look for us in process.block_us]
        processes = [
            {"process": p.process, "median_us": p.median_us, "rounds": len(p.block_us), "calls": p.calls_per_block}
            for p in look
        ]
    if not seconds or not all(math.isfinite(value) and value > 0 for value in seconds):
        return None
    return Rounds(tuple(seconds), "process medians" if result.pairs else "blocks", tuple(processes))


def replay(benchmark: Any, clock: ReplayClock, seconds: Sequence[float]) -> None:
    """Let a BenchmarkFixture that reads `clock` time calls that last exactly `seconds`."""
    remaining = iter(seconds)

    def arm() -> None:
        # From 0, because a difference of two readings would round.
        clock.now = 0.0

    def advance() -> None:
        clock.now = next(remaining, 0.0)

    benchmark.pedantic(advance, setup=arm, rounds=len(seconds), iterations=1)


def group_of(result: CaseResult) -> str:
    """Backends on the same workload stand in one table; those of two suites do not."""
    return one_line(f"{result.key.suite}/{result.key.workload}", _NAME_LIMIT)


def extra_info(result: CaseResult, rounds: Rounds, commit: str) -> dict[str, Any]:
    """What our verdict says of a case, in plain types: pytest-benchmark writes others as 'UNSERIALIZABLE[...]'."""
    key, must = result.key, result.fingerprint.must_match if result.fingerprint else {}
    timers = [pair.timer for pair in result.pairs] or [p.timer for p in result.second or result.first]
    known = {
        "verdict": result.verdict.value,
        "suite": key.suite,
        "backend": key.backend,
        "workload": key.workload,
        "label": key.label,
        "device": "/".join(must[name] for name in ("arch", "product") if name in must),
        "commit": commit,
        "timer": timers[0],
        "median_us": result.median_us,
        "baseline_us": result.baseline_us,
        "ratio": result.ratio,
        "interval": list(result.interval) if result.interval else None,
        "threshold": result.threshold,
        "against": result.against,
        "rounds_are": rounds.what,
        "processes": [dict(process) for process in rounds.processes],
    }
    return {name: value for name, value in known.items() if value not in (None, "")}


def machine_of(result: CaseResult) -> dict[str, str]:
    """Device, driver, torch, triton and what else the fingerprint names."""
    if result.fingerprint is None:
        return {}
    fields = {**result.fingerprint.named, **result.fingerprint.must_match}
    return {name: value for name, value in fields.items() if name not in _OF_A_CASE}
