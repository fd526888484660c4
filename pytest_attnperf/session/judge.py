"""The judge of a run: takes looks, compares, takes second looks, and says a verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from pytest_attnperf.baselines.record import new_entry
from pytest_attnperf.baselines.store import Found
from pytest_attnperf.errors import BaselineError, CaseFailedError, WorkerError, pasted
from pytest_attnperf.gate.decide import first_look
from pytest_attnperf.records import SECONDS_DIGITS, NotProvenRightError, Verdict
from pytest_attnperf.records.notes import Note, NoteKind, of_kind
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session import plausibility
from pytest_attnperf.session.case_records import (
    calibrated,
    case_result,
    decided,
    first_line,
    from_another_tree,
    from_look,
    joined_measurement,
    not_measured,
    over_stored,
    with_creep,
    with_figures,
    with_notes,
    with_stored,
)
from pytest_attnperf.session.faults import with_fault
from pytest_attnperf.session.looking import GATE_PLACE, RECORD_PLACES, UNTIMED, Looking
from pytest_attnperf.session.profiling import with_profile
from pytest_attnperf.session.quarantine import under_quarantine
from pytest_attnperf.session.recording import record
from pytest_attnperf.session.second_looks import Sample, Screen, Suspect, by_processes, in_pairs, recheck_gain
from pytest_attnperf.session.settings import Case, Mode
from pytest_attnperf.session.together import together
from pytest_attnperf.session.unchanged import judged_unchanged
from pytest_attnperf.workers.controller import PoisonedError
from pytest_attnperf.workers.look import Ending, Look

LOCAL = "baseline under .attnperf/local,"
"""Where a baseline is that the run counts: it was made on this machine and is not under version control."""

FLAGS = {Mode.CHECK: "", Mode.WARM: " --attnperf-warm", Mode.TOGETHER: " --attnperf-together"}
"""What a run was asked for by, where that was not --attnperf."""

Given = TypeVar("Given")


class Session(Looking):
    """Judges cases one at a time: `judge` says the verdict at once, `first_look` leaves second looks to be planned."""

    def judge(self, case: Case) -> CaseResult:
        """The verdict of one case, with everything it was made from. A case that breaks is an ERROR, never a crash."""
        started = self.clock()
        result = self.guarded(case, lambda: _closed(self._by_mode(case)))
        if self.settings.profile and case.timed:
            result = with_profile(result, self.pool, lambda: self.request(case, None), self.store)
        return self.finished(case, result, self.clock() - started)

    def first_look(self, case: Case) -> CaseResult | Suspect:
        """What the first look at a case settles, not yet `finished`; a Suspect where it leaves the case open."""
        return self.guarded(case, lambda: self._by_mode(case))

    def guarded(self, case: Case, work: Callable[[], Given]) -> Given | CaseResult:
        """What `work` gives; an ERROR of the case where it breaks."""
        try:
            return work()
        except (WorkerError, CaseFailedError, NotProvenRightError, BaselineError) as error:
            result = case_result(case, Verdict.ERROR, first_line(error), reasons=(str(error),))
            if isinstance(error, WorkerError):
                reason = Note(error.kind or NoteKind.PLAIN, error.summary)
                result = replace(result, reasons=(reason,), log=error.log_tail)
            if isinstance(error, PoisonedError):
                result = replace(result, log=error.log_tail)
            return with_fault(self, case, result, error)

    def finished(self, case: Case, result: CaseResult, seconds: float) -> CaseResult:
        """The result with what follows from its verdict: whether it fails, and how to see it again."""
        fails = result.fails or result.verdict in case.policy.fail_on
        result = replace(result, seconds=round(seconds, SECONDS_DIGITS), fails=fails)
        if self.settings.mode is Mode.GATE:
            result = under_quarantine(result, case.policy, self.today())
        return replace(result, reproduce=self._reproduce(result))

    def shutdown(self) -> None:
        """End every process of every side."""
        for pool in (self.pool, *([self.against.pool] if self.against is not None else [])):
            pool.shutdown()

    def _by_mode(self, case: Case) -> CaseResult | Suspect:
        self.renew(case)
        if not case.timed and self.settings.mode not in UNTIMED:
            return self._proven_only(case)
        if self.settings.mode is Mode.TOGETHER:
            return together(self, case)
        if self.settings.mode is Mode.UPDATE:
            return record(self, case)
        if self.settings.mode is Mode.CALIBRATE:
            return calibrated(record(self, case))
        if self.settings.changed_only and self.settings.mode is Mode.GATE:
            unchanged = self._unchanged(case)
            if unchanged is not None:
                return unchanged
        plan = None if self.settings.mode in UNTIMED else self.settings.plan
        stages = case.breakdown and self.settings.mode is Mode.GATE
        look = self.look(GATE_PLACE, case, plan, case.next_key, stages=stages)
        if look.ending is not Ending.MEASURED:
            return self.not_measured(case, look)
        return self._gate(case, look)

    def _unchanged(self, case: Case) -> CaseResult | None:
        """RIGHT where the case ran its baseline's machine code and configuration; None where it has to be timed."""
        found, request = self.find(case), self.request(case, case.next_key)
        result = judged_unchanged(case, self.pool, GATE_PLACE, request, self.settings.plan, found)
        return result if result is None or found is None else self._noted_local(result, found)

    def _noted_local(self, base: CaseResult, found: Found) -> CaseResult:
        """With a note where what it is held against was made on this machine."""
        local = of_kind(base.notes, NoteKind.LOCAL, NoteKind.LOCAL_NEW)
        if local or not found.path.is_relative_to(self.local_root):
            return base
        note = Note(NoteKind.LOCAL, f"{LOCAL} recorded {found.entry.recorded}")
        return replace(base, notes=(*base.notes, note))

    def _proven_only(self, case: Case) -> CaseResult:
        """Of a test that says timed=False; it fails where a time is stored, which would never be looked at again."""
        place = GATE_PLACE if self.settings.mode is Mode.GATE else RECORD_PLACES
        return self.not_measured(case, self.look(place, case, None, case.next_key))

    def _gate(self, case: Case, look: Look) -> CaseResult | Suspect:
        measurement = joined_measurement([look])
        base = with_figures(from_look(case, Verdict.SAME, "", look), self.device())
        base = replace(
            base,
            first=measurement.processes,
            median_us=measurement.medians_us[0],
            canary=self.canary([GATE_PLACE]) if self.settings.gates else {},
        )
        base = self.plausible(base)
        if base.verdict is Verdict.SUSPICIOUS:
            return base
        if not self.settings.gates:
            return replace(base, verdict=Verdict.RIGHT, summary="measured in the pytest process, which never gates")
        foreign = from_another_tree(base, [look])
        if foreign is not None:
            return foreign
        found, notes = self._baseline_for(case, look)
        if isinstance(found, CaseResult):
            return found
        base = replace(base, notes=base.notes + notes)
        if found is None:
            return self._pairs_or(case, base, lambda: self._without_baseline(case, base))
        if self.against is not None and self.against.everything:
            return self._pairs_first(case, base, look, found)
        return self._held_against(case, base, look, found)

    def _baseline_for(self, case: Case, look: Look) -> tuple[Found | CaseResult | None, tuple[str, ...]]:
        """The stored entry; recorded first under .attnperf/local where that was asked for and none exists."""
        found = self.find(case)
        if found is not None or not self.settings.record_local:
            return found, ()
        recorded = record(self, case)
        if recorded.verdict is not Verdict.RECORDED:
            return recorded, ()
        device, entry = self.device(), {case.key.entry: new_entry(recorded, self.commit)}
        try:
            self.store.merge(self.local_root, device.arch, device.product, case.key.suite, entry)
        except OSError as error:
            raise BaselineError(f"nothing was recorded: {error}; make room, or give write permission") from error
        said = f"{LOCAL} recorded in this run, in {len(recorded.first)} other processes"
        return self.find(case), (Note(NoteKind.LOCAL_NEW, said),)

    def _pairs_first(self, case: Case, base: CaseResult, look: Look, found: Found) -> CaseResult | Suspect:
        """Where every case is interleaved, the stored entry says how open it is, and counts where pairs cannot."""
        alike = not self.differences(look, found)
        planned = alike and self.settings.budget_seconds is not None
        screen = self._screen(case, base, look, found) if planned else None
        return self._pairs_or(
            case,
            over_stored(with_notes(base, case, found), found),
            lambda: self._held_against(case, base, look, found),
            closing=(lambda settled: with_creep(settled, case, found)) if alike else None,
            screen=screen,
        )

    def _held_against(self, case: Case, base: CaseResult, look: Look, found: Found) -> CaseResult | Suspect:
        entry = found.entry
        differences = self.differences(look, found)
        base = over_stored(base, found)
        base = self._noted_local(base, found)
        if differences:
            unlike = replace(
                base,
                verdict=Verdict.INCOMPARABLE,
                summary=f"not comparable: {differences[0]}",
                reasons=tuple(differences),
            )
            noted = replace(base, notes=(*base.notes, f"stored baseline: {unlike.summary}"))
            return self._pairs_or(case, noted, lambda: unlike)
        screen = self._screen(case, base, look, found)
        decision = screen.decision
        base = with_notes(base, case, found)
        if not decision.needs_second_look:
            base = plausibility.with_changes(decided(base, decision), entry.launches)
            base = with_stored(base, case, found)
            if base.verdict is Verdict.INCOMPARABLE:
                return self._pairs_or(case, base, lambda: base)
            return recheck_gain(self, case, base)
        fresh = Suspect(
            case,
            base,
            False,
            lambda sample: by_processes(self, case, base, look, found, screen, sample),
            screen,
        )
        return self._pairs_or(
            case,
            plausibility.with_changes(base, entry.launches),
            lambda: fresh,
            closing=lambda settled: with_creep(settled, case, found),
            screen=screen,
            first_ratio=decision.ratio,
        )

    def _screen(self, case: Case, base: CaseResult, look: Look, found: Found) -> Screen:
        """What the first look says against the stored processes."""
        stored, new = found.entry.measurement(), joined_measurement([look])
        noise = self.noise(case, stored, base.floor_bound)
        decision = first_look(stored, new, noise, case.policy, self.settings.cases)
        return Screen(decision, noise, stored)

    def _pairs_or(
        self,
        case: Case,
        base: CaseResult,
        otherwise: Callable[[], CaseResult | Suspect],
        *,
        closing: Callable[[CaseResult], CaseResult] | None = None,
        screen: Screen | None = None,
        first_ratio: float | None = None,
    ) -> CaseResult | Suspect:
        """A suspect that pairs with the base side settle; what `otherwise` gives where that side does not have it.

        closing   what is said of the pairs' verdict beside it
        """
        if self.against is None or not self.against.has(case.key):
            return otherwise()

        def settle(sample: Sample | None) -> CaseResult:
            settled = in_pairs(self, case, base, sample, first_ratio)
            if settled is None:
                usual = self.settings.second_look
                return _closed(otherwise(), None if sample is None else Sample(usual, usual, sample.go_on))
            return settled if closing is None else closing(settled)

        return Suspect(case, base, True, settle, screen)

    def _without_baseline(self, case: Case, base: CaseResult) -> CaseResult:
        if self._is_new(case):
            assert self.against is not None
            text = f"new in this revision: {self.against.name} does not have it, so there is nothing to compare it with"
            return replace(
                base, verdict=Verdict.NO_BASELINE, summary=text, reasons=(text,), new=True, against=self.against.label
            )
        device = self.device()
        others = [p for p in self.store.products(device.arch, case.key.suite) if p != device.product]
        if others:
            text = f"a baseline is stored for {device.arch}/{', '.join(others)}, this is {device.arch}/{device.product}"
            reason = Note(NoteKind.OTHER_PRODUCT, text)
            return replace(base, verdict=Verdict.INCOMPARABLE, summary=text, reasons=(reason,))
        text = (
            f"no baseline for {case.key} on {device.arch}/{device.product}; "
            f"store one with: pytest --update-baselines {pasted(case.nodeid)}"
        )
        return replace(base, verdict=Verdict.NO_BASELINE, summary=text, reasons=(text,))

    def _is_new(self, case: Case) -> bool:
        """Whether neither the base side has the case nor a baseline of this architecture does."""
        if self.against is None or self.against.has(case.key):
            return False
        arch, suite, entry = self.device().arch, case.key.suite, case.key.entry
        return not any(self.store.find(arch, other, suite, entry) for other in self.store.products(arch, suite))

    def skipped(self, case: Case, reason: str) -> CaseResult:
        """The result of a case whose test is skipped before it comes to it.

        It fails where a baseline or the base side has a time of it. Where no process starts nobody can say so.
        """
        look = Look(Ending.SKIPPED, (reason,))

        def settled() -> CaseResult:
            if not self.settings.gates:
                return not_measured(case, look)
            try:
                return self.not_measured(case, look)
            except WorkerError as error:
                note = f"whether it was timed before could not be asked: {first_line(error)}"
                return replace(not_measured(case, look), notes=(note,))

        return self.finished(case, self.guarded(case, settled), 0.0)

    def _reproduce(self, result: CaseResult) -> str:
        seed = f" --attnperf-seed={self.settings.seed}" if result.verdict is Verdict.INCORRECT else ""
        flag = FLAGS.get(self.settings.mode, " --attnperf")
        given = "".join(f" {option}" for option in self.settings.given_options)
        return f"pytest{flag}{seed}{given} {pasted(result.nodeid)}"


def _closed(opened: CaseResult | Suspect, sample: Sample | None = None) -> CaseResult:
    """The verdict; without a sample its second look is as large as that of every case."""
    return opened.settle(sample) if isinstance(opened, Suspect) else opened
