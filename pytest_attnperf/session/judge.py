"""The story of one case: look, compare with what is stored, take a second look where that leaves it open, finish.

A `Bench` holds what the run has, and is passed down. What the first look leaves open is a value, `Open`, settled at
once or when a budget has been planned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    under_quarantine,
    with_figures,
    with_notes,
    with_stored,
)
from pytest_attnperf.session.looking import GATE_PLACE, RECORD_PLACES, RECORDING, UNTIMED, Bench
from pytest_attnperf.session.second_looks import Measured, Open, Sample, Screen, by_processes, in_pairs, recheck_gain
from pytest_attnperf.session.settings import Case, Mode
from pytest_attnperf.workers.controller import PoisonedError
from pytest_attnperf.workers.look import Ending, Look

LOCAL = "baseline under .attnperf/local,"
"""Where a baseline is that the run counts: it was made on this machine and is not under version control."""

FLAGS = {Mode.CHECK: "", Mode.WARM: " --attnperf-warm", Mode.TOGETHER: " --attnperf-together"}
"""What a run was asked for by, where that was not --attnperf."""

BROKEN = (WorkerError, CaseFailedError, NotProvenRightError, BaselineError)
"""What makes a case an ERROR and never ends the run."""


@dataclass(frozen=True)
class Session:
    """Judges cases one at a time: `judge` says the verdict at once, `first_look` leaves second looks to be planned."""

    bench: Bench

    def judge(self, case: Case) -> CaseResult:
        """The verdict of one case, with everything it was made from. A case that breaks is an ERROR, never a crash."""
        started = self.bench.clock()
        result = self.first_look(case)
        if isinstance(result, Open):
            result = self.second_look(result)
        if self.bench.settings.profile and case.timed:
            from pytest_attnperf.session.profiling import with_profile

            result = with_profile(self.bench, case, result)
        return self.finished(case, result, self.bench.clock() - started)

    def first_look(self, case: Case) -> CaseResult | Open:
        """What the first look at a case settles, not yet `finished`; an Open where it leaves the case open."""
        try:
            return look_at(self.bench, case)
        except BROKEN as error:
            return _broken(self.bench, case, error)

    def second_look(self, opened: Open, sample: Sample | None = None) -> CaseResult:
        """The verdict of an open case, not yet `finished`; without a sample its second look is as large as any case's.

        Raises SampleCutError.
        """
        try:
            return settle(self.bench, opened, sample)
        except BROKEN as error:
            return _broken(self.bench, opened.case, error)

    def skipped(self, case: Case, reason: str) -> CaseResult:
        """The result of a case whose test is skipped before it comes to it.

        It fails where a baseline or the base side has a time of it. Where no process starts nobody can say so.
        """
        look = Look(Ending.SKIPPED, (reason,))
        result = not_measured(case, look)
        try:
            result = self.bench.not_measured(case, look) if self.bench.settings.gates else result
        except WorkerError as error:
            note = f"whether it was timed before could not be asked: {first_line(error)}"
            result = replace(result, notes=(note,))
        except BROKEN as error:
            result = _broken(self.bench, case, error)
        return self.finished(case, result, 0.0)

    def finished(self, case: Case, result: CaseResult, seconds: float) -> CaseResult:
        """The result with what follows from its verdict: whether it fails, and how to see it again."""
        fails = result.fails or result.verdict in case.policy.fail_on
        result = replace(result, seconds=round(seconds, SECONDS_DIGITS), fails=fails)
        if self.bench.settings.mode is Mode.GATE:
            result = under_quarantine(result, case.policy, self.bench.today())
        return replace(result, reproduce=self._reproduce(result))

    def shutdown(self) -> None:
        """End every process of every side."""
        for pool in self.bench.pools:
            pool.shutdown()

    def _reproduce(self, result: CaseResult) -> str:
        settings = self.bench.settings
        seed = f" --attnperf-seed={settings.seed}" if result.verdict is Verdict.INCORRECT else ""
        given = "".join(f" {option}" for option in settings.given_options)
        return f"pytest{FLAGS.get(settings.mode, ' --attnperf')}{seed}{given} {pasted(result.nodeid)}"


def look_at(bench: Bench, case: Case) -> CaseResult | Open:
    """The first look, as the run's mode has it: only a case that is right and timed is compared with anything."""
    bench.renew(case)
    settings = bench.settings
    if not case.timed and settings.mode not in UNTIMED:
        # It fails where a time is stored, which would never be looked at again.
        place = GATE_PLACE if settings.mode is Mode.GATE else RECORD_PLACES
        return bench.not_measured(case, bench.look(place, case, None, case.next_key))
    if settings.mode is Mode.TOGETHER:
        from pytest_attnperf.session.together import together

        return together(bench, case)
    if settings.mode in RECORDING:
        from pytest_attnperf.session.recording import record

        recorded = record(bench, case)
        return recorded if settings.mode is Mode.UPDATE else calibrated(recorded)
    if settings.changed_only and settings.mode is Mode.GATE:
        from pytest_attnperf.session.unchanged import judged_unchanged

        found = bench.find(case)
        unchanged = judged_unchanged(bench, case, GATE_PLACE, found)
        if unchanged is not None and found is not None:
            return _noted_local(bench, unchanged, found)
    plan = None if settings.mode in UNTIMED else settings.plan
    stages = case.breakdown and settings.mode is Mode.GATE
    if bench.against is not None and settings.mode is Mode.GATE:
        bench.against.begin(bench.pool, GATE_PLACE)
    look = bench.look(GATE_PLACE, case, plan, case.next_key, stages=stages)
    if look.ending is not Ending.MEASURED:
        return bench.not_measured(case, look)
    return compare(bench, case, look)


def compare(bench: Bench, case: Case, look: Look) -> CaseResult | Open:
    """A case that was measured, held against what is stored of it, or against nothing; Open where that settles nothing.

    Raises as `take_look`: a baseline may be recorded first, and a gain is looked at again.
    """
    base = _believed(bench, case, look)
    if base.verdict is not Verdict.SAME:
        return base
    found = bench.find(case)
    if found is None and bench.settings.record_local:
        from pytest_attnperf.session.recording import record_here

        recorded = record_here(bench, case)
        if recorded.verdict is not Verdict.RECORDED:
            return recorded
        said = f"{LOCAL} recorded in this run, in {len(recorded.first)} other processes"
        note = Note(NoteKind.LOCAL_NEW, said)
        found, base = bench.find(case), replace(base, notes=(*base.notes, note))
    measured = Measured(case, look, base)
    if found is None:
        return _or_pairs(bench, _without_baseline(bench, measured), Open(measured, base))
    if bench.against is not None and bench.against.everything and bench.against.has(case.key):
        return _only_pairs(bench, measured, found)
    return held_against(bench, measured, found)


def held_against(bench: Bench, measured: Measured, found: Found) -> CaseResult | Open:
    """What the stored processes say of a first look; Open where a second look has to."""
    case, entry = measured.case, found.entry
    base = _noted_local(bench, over_stored(measured.base, found), found)
    differences = bench.differences(measured.look, found)
    if differences:
        text = f"not comparable: {differences[0]}"
        unlike = replace(base, verdict=Verdict.INCOMPARABLE, summary=text, reasons=tuple(differences))
        noted = replace(base, notes=(*base.notes, f"stored baseline: {text}"))
        return _or_pairs(bench, unlike, Open(measured, noted))
    screen = _screen(bench, measured, found)
    base = with_notes(base, case, found)
    if screen.decision.needs_second_look:
        fresh = Open(measured, base, found, pairs=False, screen=screen)
        seen = plausibility.with_changes(base, entry.launches)
        paired = Open(measured, seen, found, screen=screen, first_ratio=screen.decision.ratio)
        return _or_pairs(bench, fresh, paired)
    base = plausibility.with_changes(decided(base, screen.decision), entry.launches)
    base = with_stored(base, case, found)
    if base.verdict is Verdict.INCOMPARABLE:
        return _or_pairs(bench, base, Open(measured, base))
    return recheck_gain(bench, case, base) if plausibility.is_gain(base) else base


def settle(bench: Bench, opened: Open, sample: Sample | None = None) -> CaseResult:
    """The second look at a case that the first one left open. Raises as `take_look`, and SampleCutError."""
    if opened.pairs:
        settled = in_pairs(bench, opened, sample)
        if settled is not None:
            return settled
        instead = opened.instead
        if instead is None:
            assert opened.stored is not None, "where nothing is stored it is known what to say instead"
            instead = held_against(replace(bench, against=None), opened.measured, opened.stored)
        if isinstance(instead, CaseResult):
            return instead
        usual = bench.settings.second_look
        opened, sample = instead, None if sample is None else Sample(usual, usual, sample.go_on)
    return by_processes(bench, opened, sample)


def _broken(bench: Bench, case: Case, error: Exception) -> CaseResult:
    """The ERROR of a case that broke, with its cause."""
    from pytest_attnperf.session.faults import with_fault

    result = case_result(case, Verdict.ERROR, first_line(error), reasons=(str(error),))
    if isinstance(error, WorkerError):
        reason = Note(error.kind or NoteKind.PLAIN, error.summary)
        result = replace(result, reasons=(reason,), log=error.log_tail)
    if isinstance(error, PoisonedError):
        result = replace(result, log=error.log_tail)
    return with_fault(bench, case, result, error)


def _believed(bench: Bench, case: Case, look: Look) -> CaseResult:
    """What a first look found out: SAME until it is compared, and any other verdict where it may not be."""
    measurement = joined_measurement([look])
    base = with_figures(from_look(case, Verdict.SAME, "", look), bench.device())
    base = replace(
        base,
        first=measurement.processes,
        median_us=measurement.medians_us[0],
        canary=bench.canary([GATE_PLACE]) if bench.settings.gates else {},
    )
    base = bench.plausible(base)
    if base.verdict is Verdict.SUSPICIOUS:
        return base
    if not bench.settings.gates:
        return replace(base, verdict=Verdict.RIGHT, summary="measured in the pytest process, which never gates")
    return from_another_tree(base, [look]) or base


def _only_pairs(bench: Bench, measured: Measured, found: Found) -> Open:
    """Where every case is interleaved, the stored entry says how open it is, and counts where pairs cannot."""
    alike = not bench.differences(measured.look, found)
    planned = alike and bench.settings.budget_seconds is not None
    return Open(
        measured,
        over_stored(with_notes(measured.base, measured.case, found), found),
        found,
        comparable=alike,
        screen=_screen(bench, measured, found) if planned else None,
    )


def _or_pairs(bench: Bench, outcome: CaseResult | Open, opened: Open) -> CaseResult | Open:
    """What pairs with the base side settle; `outcome` where there is none, or it does not have the case."""
    if bench.against is None or not bench.against.has(opened.case.key):
        return outcome
    return replace(opened, instead=outcome)


def _screen(bench: Bench, measured: Measured, found: Found) -> Screen:
    """What the first look says against the stored processes."""
    case, stored, new = measured.case, found.entry.measurement(), joined_measurement([measured.look])
    noise = bench.noise(case, stored, measured.base.floor_bound)
    return Screen(first_look(stored, new, noise, case.policy, bench.settings.cases), noise, stored)


def _noted_local(bench: Bench, base: CaseResult, found: Found) -> CaseResult:
    """With a note where what it is held against was made on this machine."""
    if not found.path.is_relative_to(bench.local_root) or of_kind(base.notes, NoteKind.LOCAL, NoteKind.LOCAL_NEW):
        return base
    note = Note(NoteKind.LOCAL, f"{LOCAL} recorded {found.entry.recorded}")
    return replace(base, notes=(*base.notes, note))


def _without_baseline(bench: Bench, measured: Measured) -> CaseResult:
    """What is said of a case that nothing is stored of, here."""
    case, against, device = measured.case, bench.against, bench.device()
    arch, suite = device.arch, case.key.suite
    others = bench.store.products(arch, suite)
    stored = (bench.store.find(arch, other, suite, case.key.entry) for other in others)
    if against is not None and not against.has(case.key) and not any(stored):
        text = f"new in this revision: {against.name} does not have it, so there is nothing to compare it with"
        new = replace(measured.base, verdict=Verdict.NO_BASELINE, summary=text, reasons=(text,))
        return replace(new, new=True, against=against.label)
    others = [product for product in others if product != device.product]
    if others:
        text = f"a baseline is stored for {arch}/{', '.join(others)}, this is {arch}/{device.product}"
        reasons = (Note(NoteKind.OTHER_PRODUCT, text),)
        return replace(measured.base, verdict=Verdict.INCOMPARABLE, summary=text, reasons=reasons)
    text = (
        f"no baseline for {case.key} on {arch}/{device.product}; "
        f"store one with: pytest --update-baselines {pasted(case.nodeid)}"
    )
    return replace(measured.base, verdict=Verdict.NO_BASELINE, summary=text, reasons=(text,))
