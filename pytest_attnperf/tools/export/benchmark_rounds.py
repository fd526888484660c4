"""The samples of a case as pytest-benchmark stores them: rounds in seconds, a group, figures and a machine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import CaseResult

_OF_A_CASE = frozenset({"timer", "cache_state"})
"""Fields of a fingerprint that belong to a case, not to the machine."""

_NAME_LIMIT = 120
"""Most characters in the name of a group: `--benchmark-histogram` names a file after it."""


@dataclass(frozen=True)
class BenchmarkRounds:
    """The samples of a case for pytest-benchmark.

    seconds     seconds per call of each round, in measured order, process by process
    what        'blocks' of the processes, or 'process medians' of an interleaved look, whose blocks are not kept
    processes   the processes as plain data: name, median, number of rounds
    """

    seconds: tuple[float, ...]
    what: str
    processes: tuple[dict[str, Any], ...]


def rounds_of(result: CaseResult) -> BenchmarkRounds | None:
    """Returns the samples that decided: of the pairs with the base side, else of the second measurement, else of the
    first. None if there are none, or one is not a positive number.

    Our verdict uses only the medians of processes, which are the independent unit. Rounds are still blocks, because
    users of pytest-benchmark expect repetitions of one session. `processes` says which process measured which rounds,
    so that the medians can be computed from the file.
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
    return BenchmarkRounds(tuple(seconds), "process medians" if result.pairs else "blocks", tuple(processes))


def group_of(result: CaseResult) -> str:
    """Returns '<suite>/<workload>', the group of a case: one table with all backends of the workload."""
    return one_line(f"{result.key.suite}/{result.key.workload}", _NAME_LIMIT)


def extra_info(result: CaseResult, rounds: BenchmarkRounds, commit: str) -> dict[str, Any]:
    """Returns the case's verdict and figures as name -> value. The values are builtins, because pytest-benchmark writes
    other types as 'UNSERIALIZABLE[...]'."""
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
        "timer": timers[0] if timers else "",
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
    """Returns name -> value of device, driver, torch, triton and other machine facts; {} without a fingerprint."""
    if result.fingerprint is None:
        return {}
    fields = {**result.fingerprint.named, **result.fingerprint.must_match}
    return {name: value for name, value in fields.items() if name not in _OF_A_CASE}
