"""One look: one case in one process, proven right, measured, and proven right again on its last replay."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from pytest_attnperf.errors import CaseFailedError, UnsupportedError
from pytest_attnperf.records import CheckReport, Fingerprint, ProcessSummary, Rotation, Samples, WorkloadFigures
from pytest_attnperf.records.code import KernelObject
from pytest_attnperf.records.final_report import FinalReport
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.records.pairs import TurnPlan
from pytest_attnperf.records.profiles import CaseProfile
from pytest_attnperf.records.stages import Breakdown
from pytest_attnperf.stats.summaries import method_of, summarise_process
from pytest_attnperf.workers.controller import Ready, WrongAsTimedError
from pytest_attnperf.workers.conversation import BlockPlan, Conversation, Opened, OpenRequest
from pytest_attnperf.workers.pool import Pool


class Ending(str, enum.Enum):
    """How a look (one case measured or proven in one process) ended. RIGHT: proven, and not or not yet timed."""

    MEASURED = "measured"
    RIGHT = "right"
    INCORRECT = "incorrect"
    UNSUPPORTED = "unsupported"
    SKIPPED = "skipped"
    BODY_FAILED = "body failed"


@dataclass(frozen=True)
class Look:
    """The result of one case in one process. `report` joins the checks before and after timing; `note` says why it was
    not timed, or what is missing."""

    ending: Ending
    reasons: tuple[str, ...] = ()
    report: CheckReport = field(default_factory=CheckReport)
    summary: ProcessSummary | None = None
    fingerprint: Fingerprint | None = None
    figures: WorkloadFigures | None = None
    final: FinalReport = field(default_factory=FinalReport)
    note: str = ""
    rotation: Rotation | None = None
    breakdown: Breakdown | None = None


def take_look(
    pool: Pool,
    place: int,
    request: OpenRequest,
    plan: BlockPlan | None,
    *,
    rotate: bool = False,
    stages: bool = False,
    profiled: bool = True,
    loaded: Callable[[Sequence[KernelObject]], None] = lambda _kernels: None,
) -> Look:
    """Opens, checks, times and closes a case in process number `place`; returns the result. It is not timed without
    `plan`, and if it is unsupported, wrong or must not be timed; the result says which.

    loaded     called, if the case will be timed, with the kernels that it has loaded, before it is checked
    rotate     also time calls whose inputs change before each call
    stages     also time the stages of a call; if that fails, the result has a note instead
    profiled   if there is no plan, watch the checked call with a profiler; not if this process times other cases

    Raises WorkerError if the process died or hung, CaseFailedError if the case raised.
    """
    ready = pool.wait_until_ready(place)
    samples, note = None, ""
    with pool.case_at(place, request) as case:
        look = open_and_check(
            case, ready, profiled=profiled and plan is None, loaded=loaded if plan is not None else None
        )
        if look.ending is not Ending.RIGHT:
            return look
        try:
            if plan is not None and not look.note:
                samples = case.measure_blocks(plan)
                if rotate:
                    look = replace(look, rotation=case.measure_rotation(plan.block_us))
                if stages:
                    look, note = _add_stages(case, look, plan.block_us)
        except WrongAsTimedError as error:
            return close_wrong_as_timed(case, look, error)
        look = finish_and_close(case, look)
    if samples is None or look.ending is not Ending.RIGHT:
        return look
    return _as_measured(look, ready, samples, note)


def _add_stages(case: Conversation, look: Look, block_us: float) -> tuple[Look, str]:
    """Returns (look with the stages' times, ''), or (look unchanged, note why there are none). Raises WrongAsTimedError
    if a replayed call is wrong."""
    try:
        return replace(look, breakdown=case.measure_stages(block_us)), ""
    except WrongAsTimedError:
        raise
    except CaseFailedError as error:
        return look, f"stages were not timed: {error.summary}"


def take_profile(pool: Pool, place: int, request: OpenRequest) -> CaseProfile:
    """Opens, checks, profiles and closes a case in process number `place`, which never times a case.

    Raises as `take_look`, and CaseFailedError if the case is not proven right, or must not be timed.
    """
    ready = pool.wait_until_ready(place)
    with pool.case_at(place, request) as case:
        look = open_and_check(case, ready, profiled=False)
        if look.ending is not Ending.RIGHT:
            raise CaseFailedError(
                f"the case ended as {look.ending.value} in the process that was to profile it: {look.reasons[0]}"
            )
        if look.note:
            raise CaseFailedError(look.note)
        return case.profile()


def open_and_check(
    case: Conversation,
    ready: Ready,
    *,
    profiled: bool,
    loaded: Callable[[Sequence[KernelObject]], None] | None = None,
) -> Look:
    """Opens and checks a case; returns the result so far. If it is RIGHT, the case is still open and may be timed,
    unless the result has a note that says why not; else the case is closed."""
    opened = case.open()
    if opened.state == "finished":
        return _without_rendezvous(opened)
    look = Look(Ending.RIGHT, figures=opened.figures, fingerprint=ready.fingerprint, note=opened.not_timed)
    if opened.unsupported:
        case.close()
        return replace(look, ending=Ending.UNSUPPORTED, reasons=tuple(opened.unsupported))
    if loaded is not None and not look.note:
        loaded(opened.loaded)
    try:
        look = replace(look, report=case.check(profiled=profiled))
    except UnsupportedError as error:  # only the first call shows that a kernel cannot be interpreted
        case.close()
        return replace(look, ending=Ending.UNSUPPORTED, reasons=(str(error),))
    if look.report.right:
        return look
    case.close()
    return _as_incorrect(look)


def finish_and_close(case: Conversation, look: Look) -> Look:
    """Proves the last timed call right, closes the case, and returns its look (result) with both checks; INCORRECT if
    one failed, BODY_FAILED if the test then failed."""
    final = case.finish()
    look = replace(look, final=final, report=look.report.merge_with(final.check))
    closed = case.close()
    if not look.report.right:
        return _as_incorrect(look)
    if closed.outcome == "failed":
        return replace(look, ending=Ending.BODY_FAILED, reasons=(closed.text,))
    return look


def close_wrong_as_timed(case: Conversation, look: Look, error: WrongAsTimedError) -> Look:
    """Closes a case that is right when called but wrong when replayed; returns its look as INCORRECT."""
    case.close()
    return _as_incorrect(replace(look, report=look.report.merge_with(error.report)))


def _without_rendezvous(opened: Opened) -> Look:
    if opened.outcome == "skipped":
        return Look(Ending.SKIPPED, (opened.text,))
    if opened.outcome == "failed":
        return Look(Ending.BODY_FAILED, (opened.text,))
    return Look(
        Ending.BODY_FAILED,
        ("the test ended without calling attnperf.run() or attnperf.gate(): call one of them once in its body",),
    )


def _as_measured(look: Look, ready: Ready, samples: Samples, stages_note: str) -> Look:
    process = f"pid {ready.pid}"
    note = "; ".join(note for note in (look.note, samples.note, stages_note) if note)
    return replace(
        look,
        ending=Ending.MEASURED,
        summary=replace(
            summarise_process(samples, device_id=ready.device.device_id, process=process), costs=look.final.costs
        ),
        fingerprint=case_fingerprint(ready.fingerprint, samples),
        note=Note(NoteKind.NO_STAGES, note, stages_note) if stages_note else note,
    )


def _as_incorrect(look: Look) -> Look:
    reasons = look.report.problems or ("the check compared nothing, so it proves nothing",)
    return replace(look, ending=Ending.INCORRECT, reasons=reasons)


def case_fingerprint(machine: Fingerprint, samples: Samples | TurnPlan) -> Fingerprint:
    """Returns the fingerprint `machine` with the case's timer, timing method and cache state added to what must match.

    With graph timers the ROCm version must match, too, because the cost per graph node differs between releases.
    """
    timed = {"timer": samples.timer, "method": method_of(samples.timer), "cache_state": samples.cache_state}
    must = {**machine.must_match, **timed}
    if samples.timer.startswith("graph") and "rocm" in machine.named:
        must["rocm"] = machine.named["rocm"]
    return Fingerprint(must, machine.named)


def take_identity_look(pool: Pool, place: int, request: OpenRequest, plan: BlockPlan) -> tuple[Look, str]:
    """Opens, checks, captures and closes a case in process number `place` without timing it; returns (result, timer's
    name).

    The result's fingerprint is that of a case timed by this timer. The timer's name is '' if the result is not RIGHT,
    or if its note says that the case must not be timed here.

    Raises WorkerError if the process died or hung, CaseFailedError if the case raised or cannot be timed.
    """
    ready = pool.wait_until_ready(place)
    with pool.case_at(place, request) as case:
        look = open_and_check(case, ready, profiled=False)
        if look.ending is not Ending.RIGHT:
            return look, ""
        if look.note:
            return finish_and_close(case, look), ""
        try:
            turns = case.prepare_turns(plan.block_us, plan.timer)
        except WrongAsTimedError as error:
            return close_wrong_as_timed(case, look, error), ""
        look = finish_and_close(case, replace(look, fingerprint=case_fingerprint(ready.fingerprint, turns)))
        return look, turns.timer if look.ending is Ending.RIGHT else ""
