"""Judges one kernel's file that nobody trusts: asks the workers in turn, and draws the conclusion.

`worker_cases` says which process holds what. This process runs nothing of either file, and only it gives the verdict.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest_attnperf
from pytest_attnperf.environment.device_specs import spec_for
from pytest_attnperf.errors import CaseFailedError, UsageError, WorkerError
from pytest_attnperf.measure.remote_function import LATE
from pytest_attnperf.records import CaseKey, NotProvenRightError, Verdict
from pytest_attnperf.records.notes import NoteKind
from pytest_attnperf.records.time_units import format_time
from pytest_attnperf.roofline.floors import compute_floor, judge_time
from pytest_attnperf.stats.summaries import is_slower_rotated
from pytest_attnperf.tools.judging import worker_cases
from pytest_attnperf.tools.judging.judgement import (
    ALONE,
    INNER,
    OUTSIDE,
    JudgedErrors,
    JudgedFile,
    JudgedProblem,
    JudgedTimes,
    Judgement,
)
from pytest_attnperf.tools.judging.kernel_workers import JudgeRequest, KernelWorkers
from pytest_attnperf.tools.judging.process_tree import adopting_orphans
from pytest_attnperf.workers.controller import Ready
from pytest_attnperf.workers.conversation import BlockPlan, OpenRequest
from pytest_attnperf.workers.look import Ending, Look, take_look
from pytest_attnperf.workers.pool import WorkerPool

GRACE_SECONDS = 30.0
"""Beyond the limit of the kernel's processes, for what the judging worker computes itself."""
REFERENCE_SECONDS = 300.0
CALLS_LEAST, OUTSIDE_FACTOR, OUTSIDE_US, BYTES_PER_US = 10, 4.0, 2000.0, 500.0
"""A claimed time is not believed if the quickest of CALLS_LEAST calls took OUTSIDE_FACTOR times as long from outside,
OUTSIDE_US for the way, and as long as its inputs and outputs need at 0.5 GB/s. Honest kernels stay far below: a call
of 10 us takes 0.1 ms from outside on two busy cores."""


def judge_kernel(request: JudgeRequest) -> Judgement:
    """Judges a kernel's file and returns the judgement, whatever the kernel does. Raises UsageError for an invalid
    reference, and with `require_limits` if a limit is not enforced."""
    with adopting_orphans(), tempfile.TemporaryDirectory(prefix="attnperf-judge-") as folder:
        workers = KernelWorkers(request, Path(os.path.realpath(folder)))
        try:
            return Judging(workers).judge()
        finally:
            workers.shutdown()


@dataclass
class Judging:
    """One judging: what the workers have answered so far."""

    workers: KernelWorkers
    started: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[JudgedProblem] = field(default_factory=list)
    errors: list[JudgedErrors] = field(default_factory=list)
    times: JudgedTimes = field(default_factory=JudgedTimes)
    ready: Ready | None = None
    traceback: str = ""

    def judge(self) -> Judgement:
        """Asks the workers in turn, and returns the judgement. Raises as `judge_kernel`."""
        with self._time_part("start"):
            self._start()
        with self._time_part("reference"):
            reference = self._look_at_reference()
        with self.workers.watch.running():
            with self._time_part(ALONE):
                found = self._judge_alone()
            if found is None:
                with self._time_part(INNER):
                    found = self._judge_inner(reference)
        return self._conclude(*found)

    def _start(self) -> None:
        self.workers.start()
        try:
            self.ready = self.workers.judging_pool.wait_until_ready(0)
        except WorkerError as error:
            raise UsageError(f"the judging worker could not start: {error}") from error
        with contextlib.suppress(WorkerError):  # raised again when it is asked
            self.workers.inner_pool.wait_until_ready(0)
        missing = [f"{state.name} ({state.why})" for state in self.workers.list_limits() if not state.enforced]
        if missing and self.workers.request.require_limits:
            raise UsageError(f"not judged, because limits are not enforced here: {'; '.join(missing)}")

    def _look_at_reference(self) -> Look:
        """Returns the look at the reference itself. Raises UsageError if it cannot be a reference."""
        plan = BlockPlan() if self.workers.request.timed else None
        name = self.workers.request.reference.name
        try:
            look = self._take_look(self.workers.judging_pool, worker_cases.REFERENCE_CASE, REFERENCE_SECONDS, plan)
        except (WorkerError, CaseFailedError, NotProvenRightError) as error:
            raise UsageError(f"{name} cannot be judged with: {error}") from error
        if look.ending in (Ending.BODY_FAILED, Ending.SKIPPED, Ending.UNSUPPORTED):
            raise UsageError(f"{name} cannot be judged with: {'; '.join(look.reasons)}")
        if look.ending is Ending.INCORRECT:
            self.notes.append(f"the reference is no kernel by the judge's rules, so it is not timed: {look.reasons[0]}")
        elif look.note:
            self.notes.append(f"the reference is not timed {look.note}")
        return look

    def _judge_alone(self) -> tuple[Verdict, str] | None:
        """Judges the kernel in its process without a reference; returns a verdict unless it is right there."""
        limit = self.workers.request.seconds + GRACE_SECONDS
        found, _ = self._judge_in(ALONE, self.workers.judging_pool, worker_cases.REMOTE_CASE, limit, None)
        self.workers.end_alone()
        return found

    def _judge_inner(self, reference: Look) -> tuple[Verdict, str]:
        """Judges and times the kernel in its other process; returns the verdict on all that is known then."""
        request = self.workers.request
        plan = BlockPlan() if request.timed else None
        found, look = self._judge_in(INNER, self.workers.inner_pool, worker_cases.INNER_CASE, request.seconds, plan)
        if found is not None or look is None:
            return found or (Verdict.ERROR, "")
        self._note_times(look, reference)
        suspicions = list(self._list_suspicions(look, reference))
        self.problems += [JudgedProblem(OUTSIDE, text) for text in suspicions]
        return (Verdict.SUSPICIOUS, suspicions[0]) if suspicions else (Verdict.RIGHT, "")

    def _judge_in(
        self, where: str, pool: WorkerPool, case: str, limit_seconds: float, plan: BlockPlan | None
    ) -> tuple[tuple[Verdict, str] | None, Look | None]:
        """Returns (verdict unless it is right there, the look); adds its problems and errors to this judging's."""
        try:
            look = self._take_look(pool, case, limit_seconds, plan)
        except (WorkerError, CaseFailedError, NotProvenRightError) as error:
            return self._note_failure(where, error), None
        self.errors += [JudgedErrors(where, figures) for figures in look.report.figures]
        self.notes += [note for note in look.report.notes if note not in self.notes]
        if look.ending in (Ending.MEASURED, Ending.RIGHT):
            return None, look
        if look.ending is Ending.INCORRECT:
            self.problems += [JudgedProblem(where, reason) for reason in look.reasons]
            return (Verdict.INCORRECT, look.reasons[0]), look
        said = CaseFailedError("; ".join(look.reasons))
        failed, summary = self._note_failure(where, said)
        return (Verdict.UNSUPPORTED if look.ending is Ending.UNSUPPORTED else failed, summary), look

    def _note_failure(self, where: str, error: Exception) -> tuple[Verdict, str]:
        """Adds the problem that the kernel gave no result; returns the verdict."""
        request, failure = self.workers.request, self.workers.read_report().failure
        text, self.traceback = failure.text if failure else _summarise(error), failure.trace if failure else ""
        late = isinstance(error, WorkerError) and error.kind is NoteKind.NO_ANSWER
        if exceeded := self._describe_exceeded():
            text = exceeded
        elif late or (failure and failure.kind == LATE):
            text = f"it took more than {request.seconds:g} s (--time) and was ended"
        self.problems.append(JudgedProblem(where, text))
        return Verdict.ERROR, text

    def _take_look(self, pool: WorkerPool, case: str, limit_seconds: float, plan: BlockPlan | None) -> Look:
        known = pool.wait_until_ready(0).cases
        key = next((one for one in known if one.workload == case), CaseKey("", "", case))
        check, final = (secrets.randbits(worker_cases.SEED_BITS) for _ in range(2))
        if self.workers.request.seed is not None:
            check, final = (worker_cases.derive_seed(self.workers.request.seed, number) for number in (1, 2))
        request = OpenRequest(key, None, check, final, limit_seconds)
        timed = plan is not None
        return take_look(
            pool, 0, request, plan, rotate=timed and pool is self.workers.inner_pool, profiled=self.workers.on_gpu
        )

    def _describe_exceeded(self) -> str:
        found = self.workers.watch.exceeded
        if found is None:
            return ""
        return (
            f"it used more than {found.most / 2**20:.0f} MiB of {found.limit} (--{found.limit}) and was ended; "
            f"{found.bytes / 2**20:.0f} MiB were seen"
        )

    def _note_times(self, look: Look, reference: Look) -> None:
        report = self.workers.read_report()
        outside = report.answer_us or None
        ours, theirs = look.summary, reference.summary
        if ours is None:
            why = look.note if self.workers.request.timed else "--no-time"
            self.times = JudgedTimes(outside_us=outside, why_not=why)
            return
        why = "" if theirs else "see the notes"
        self.times = JudgedTimes(
            kernel_us=ours.median_us,
            reference_us=theirs.median_us if theirs else None,
            speedup=theirs.median_us / ours.median_us if theirs else None,
            outside_us=outside,
            timer=ours.timer,
            why_not=why,
        )

    def _list_suspicions(self, look: Look, reference: Look) -> Iterator[str]:
        """Yields why a time cannot be believed."""
        claimed_us = self.times.kernel_us
        if claimed_us is None or self.ready is None:
            return
        report = self.workers.read_report()
        most_us = OUTSIDE_FACTOR * claimed_us + OUTSIDE_US + report.moved_bytes / BYTES_PER_US
        if report.calls >= CALLS_LEAST and report.answer_us > most_us:
            yield (
                f"the time is not believed: {format_time(claimed_us)} by the clock in the kernel's own process, but no "
                f"call took less than {format_time(report.answer_us)} seen from outside"
            )
        if look.rotation is not None and is_slower_rotated(look.rotation):
            yield (
                f"remembers its results: {format_time(look.rotation.same_us)} per call while the inputs stay the same, "
                f"{format_time(look.rotation.rotating_us)} when they change before every call"
            )
        spec = spec_for(self.ready.device)
        floor = compute_floor(reference.figures, spec) if reference.figures and spec else None
        if floor is not None and (judged := judge_time(claimed_us, floor)).kind == "impossible":
            yield judged.text

    def _conclude(self, verdict: Verdict, summary: str) -> Judgement:
        request, report = self.workers.request, self.workers.read_report()
        self.seconds["total"] = round(time.monotonic() - self.started, 2)
        fingerprint = self.ready.fingerprint if self.ready else None
        return Judgement(
            verdict=verdict,
            summary=summary,
            kernel=_describe_file(request.kernel, self.workers.kernel, request.function),
            reference=_describe_file(request.reference, request.reference, request.reference_name, request.inputs_name),
            problems=tuple(self.problems),
            notes=tuple(self.notes),
            errors=tuple(self.errors),
            times=self.times if verdict is Verdict.RIGHT else JudgedTimes(why_not=f"it is {verdict.value}"),
            limits=tuple(self.workers.list_limits()),
            seed=report.seed,
            input_seeds=tuple(report.input_seeds),
            device=self.ready.device if self.ready else None,
            versions={"pytest_attnperf": pytest_attnperf.__version__, **(fingerprint.named if fingerprint else {})},
            seconds=self.seconds,
            traceback=self.traceback,
            log=self.workers.read_log(inner=any(problem.found_by == INNER for problem in self.problems)),
        )

    @contextlib.contextmanager
    def _time_part(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(time.monotonic() - started, 2)


def _describe_file(shown: Path, content: Path, *functions: str) -> JudgedFile:
    return JudgedFile(
        os.fsencode(shown).decode("utf-8", "backslashreplace"),
        functions,
        hashlib.sha256(content.read_bytes()).hexdigest(),
    )


def _summarise(error: Exception) -> str:
    """Returns the first line of an error, without its traceback or log."""
    text = error.summary if isinstance(error, (WorkerError, CaseFailedError)) else str(error)
    return text.strip().partition("\n")[0]
