"""Finds out what ran, by operators, a profiler or the graph, and compares it with what the backend declares."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_attnperf.correctness import what_ran
from pytest_attnperf.correctness.what_ran import Trace, per_call
from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure import trace
from pytest_attnperf.measure.graph_nodes import UnreadableGraphError
from pytest_attnperf.measure.ran_code import RanCode
from pytest_attnperf.records import CheckReport, Launch

if TYPE_CHECKING:
    from pytest_attnperf.backends import Prepared
    from pytest_attnperf.measure.timers.replay import ReplayTimer


class OtherWorkError(CaseFailedError):
    """What was captured for timing differs from what the backend declares; `report` says how."""

    def __init__(self, report: CheckReport) -> None:
        super().__init__("\n".join(report.problems))
        self.report = report


@dataclass(frozen=True)
class Inspection:
    """What ran, and how it differs from what the backend declares.
    `unknown` says why nothing could be read; '' if something was."""

    report: CheckReport
    launches: tuple[Launch, ...] = ()
    unknown: str = ""


def inspect_operators(prepared: Prepared, backend: str) -> Inspection:
    """Runs one call and compares its torch operators with what the backend declares.
    The process may time afterwards: only torch's older profiler is used, which slows nothing later."""
    started = time.perf_counter()
    return _judge_trace(trace.record_operators(prepared.run), prepared, backend, "what ran", started)


def inspect_gpu_work(prepared: Prepared, backend: str, ran: RanCode) -> Inspection:
    """Profiles one call and compares its kernels, copies, streams and operators with what the backend declares.

    Nothing may be timed in this process afterwards, because the profiler slows it.

    ran   identifies the kernels' code
    """
    started = time.perf_counter()
    seen = trace.record_gpu_work(prepared.run)
    return _judge_trace(
        replace(seen, launches=ran.identify_launches(seen.launches)), prepared, backend, "what ran", started
    )


def inspect_graph(timer: ReplayTimer, prepared: Prepared, backend: str, ran: RanCode) -> Inspection:
    """Compares the content of the captured graph that `timer` replays with what the backend declares.

    `Inspection.unknown` says why if the graph cannot be read.

    ran   identifies the kernels' code
    """
    started = time.perf_counter()
    try:
        content = timer.read_graph_content()
    except UnreadableGraphError as error:
        return Inspection(CheckReport(), unknown=str(error))
    launches = ran.identify_launches(content.launches, content.functions)
    seen = Trace(per_call(launches, timer.calls_per_block), branches=content.branches, on_gpu=True)
    return _judge_trace(seen, prepared, backend, "what is timed", started)


def _judge_trace(seen: Trace, prepared: Prepared, backend: str, check: str, started: float) -> Inspection:
    problems = tuple(f"{check}: {text}" for text in what_ran.list_problems(seen, prepared.declares, backend))
    seconds = time.perf_counter() - started
    return Inspection(CheckReport(problems=problems, seconds=seconds, parts={"what ran": seconds}), seen.launches)
