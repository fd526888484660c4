"""What ran, looked at in the way that each moment allows, and judged."""

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
    """What was captured for timing is not what the backend says it is; `report` shows what."""

    def __init__(self, report: CheckReport) -> None:
        super().__init__("\n".join(report.problems))
        self.report = report


@dataclass(frozen=True)
class Inspection:
    """What was found out. `unknown` says why nothing could be; '' where something was."""

    report: CheckReport
    launches: tuple[Launch, ...] = ()
    unknown: str = ""


def inspect_operators(prepared: Prepared, backend: str) -> Inspection:
    """Judge torch's operators of one call; may be followed by timing."""
    started = time.perf_counter()
    return _judge_trace(trace.record_operators(prepared.run), prepared, backend, "what ran", started)


def inspect_gpu_work(prepared: Prepared, backend: str, ran: RanCode) -> Inspection:
    """Judge kernels, copies, streams and operators of one call; nothing may be timed in the process afterwards.

    ran   tells the code of the kernels
    """
    started = time.perf_counter()
    seen = trace.record_gpu_work(prepared.run)
    return _judge_trace(
        replace(seen, launches=ran.identify_launches(seen.launches)), prepared, backend, "what ran", started
    )


def inspect_graph(timer: ReplayTimer, prepared: Prepared, backend: str, ran: RanCode) -> Inspection:
    """Judge what a captured graph holds; `unknown` where graphs cannot be read.

    ran   tells the code of the kernels
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
