"""Judges one case: look, compare with what is stored, take a second look where that decides nothing, finish.

A `RunBench` holds what the run has, and is passed down. A case that the first look leaves open is a value, `Open`. It
is decided at once, or after a budget has been planned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pytest_attnperf.baselines.store import StoredEntry
from pytest_attnperf.errors import BaselineError, CaseFailedError, WorkerError, quote_nodeid
from pytest_attnperf.gate.decide import first_look
from pytest_attnperf.records import SECONDS_DIGITS, NotProvenRightError, Verdict
from pytest_attnperf.records.notes import Note, NoteKind, filter_notes
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session import plausibility
from pytest_attnperf.session.case_records import (
    apply_decision,
    apply_quarantine,
    case_result,
    first_line,
    join_measurement,
    mark_calibrated,
    reject_other_tree,
    result_from_look,
    unmeasured_result,
    with_figures,
    with_notes,
    with_stored,
    with_stored_processes,
)
from pytest_attnperf.session.cost_looks import settle_costs
from pytest_attnperf.session.looking import GATE_PLACE, RECORD_PLACES, RECORDING, UNTIMED, RunBench
from pytest_attnperf.session.second_looks import (
    Measured,
    Open,
    SampleSize,
    Screen,
    recheck_gain,
    settle_by_processes,
    settle_in_pairs,
)
from pytest_attnperf.session.settings import Case, RunMode
from pytest_attnperf.workers.controller import PoisonedError
from pytest_attnperf.workers.look import Ending, Look

LOCAL = "baseline under .attnperf/local,"
"""Begins the note on a baseline that was made on this machine, outside version control. The run counts these."""

FLAGS = {RunMode.CHECK: "", RunMode.WARM: " --attnperf-warm", RunMode.TOGETHER: " --attnperf-together"}
"""The command line flag of each mode, where it is not --attnperf."""

BROKEN = (WorkerError, CaseFailedError, NotProvenRightError, BaselineError)
"""Errors that make a case an ERROR and never end the run."""


@dataclass(frozen=True)
class Session:
    """Judges cases one at a time: `judge` decides at once, `first_look` leaves second looks to be planned."""

    bench: RunBench

    def judge(self, case: Case) -> CaseResult:
        """Returns the finished result of one case. A case that breaks is an ERROR; no exception is raised for it."""
        started = self.bench.clock()
        result = self.first_look(case)
        if isinstance(result, Open):
            result = self.second_look(result)
        if self.bench.settings.profile and case.timed:
            from pytest_attnperf.session.profiling import with_profile

            result = with_profile(self.bench, case, result)
        return self.finish_result(case, result, self.bench.clock() - started)

    def first_look(self, case: Case) -> CaseResult | Open:
        """Measures the case once; returns its result, or an Open if a second look (more processes, or pairs) must
        decide it. The result still has to pass `finish_result`."""
        try:
            found = look_at(self.bench, case)
            return found if isinstance(found, Open) else _settle_costs(self.bench, case, found)
        except BROKEN as error:
            return _make_error(self.bench, case, error)

    def second_look(self, opened: Open, sample: SampleSize | None = None) -> CaseResult:
        """Measures an open case again; returns its result, which still has to pass `finish_result`.

        `sample` is the number of processes or pairs (None: the usual). Raises SampleCutError if time cut it too short.
        """
        try:
            return _settle_costs(self.bench, opened.case, settle_case(self.bench, opened, sample))
        except BROKEN as error:
            return _make_error(self.bench, opened.case, error)

    def make_skipped_result(self, case: Case, reason: str) -> CaseResult:
        """Returns the finished result of a case whose test was skipped before it ran.

        It fails where a baseline or the base side has a time of it. Where no process starts, that cannot be checked.
        """
        look = Look(Ending.SKIPPED, (reason,))
        result = unmeasured_result(case, look)
        try:
            result = self.bench.make_unmeasured_result(case, look) if self.bench.settings.gates else result
        except WorkerError as error:
            note = f"whether it was timed before could not be checked: {first_line(error)}"
            result = replace(result, notes=(note,))
        except BROKEN as error:
            result = _make_error(self.bench, case, error)
        return self.finish_result(case, result, 0.0)

    def finish_result(self, case: Case, result: CaseResult, seconds: float) -> CaseResult:
        """Returns the result with seconds, whether its test fails, quarantine, and the command that reproduces it."""
        fails = result.fails or result.verdict in case.policy.fail_on
        result = replace(result, seconds=round(seconds, SECONDS_DIGITS), fails=fails)
        if self.bench.settings.mode is RunMode.GATE:
            result = apply_quarantine(result, case.policy, self.bench.today())
        return replace(result, reproduce=self._reproduce_command(result))

    def shutdown(self) -> None:
        """Ends every process of every side."""
        for pool in self.bench.pools:
            pool.shutdown()

    def _reproduce_command(self, result: CaseResult) -> str:
        settings = self.bench.settings
        seed = f" --attnperf-seed={settings.seed}" if result.verdict is Verdict.INCORRECT else ""
        given = "".join(f" {option}" for option in settings.given_options)
        return f"pytest{FLAGS.get(settings.mode, ' --attnperf')}{seed}{given} {quote_nodeid(result.nodeid)}"


def look_at(bench: RunBench, case: Case) -> CaseResult | Open:
    """Measures a case a first time, by the run's mode; returns its result, or an Open if a second time must decide."""
    bench.renew_processes(case)
    settings = bench.settings
    if not case.timed and settings.mode not in UNTIMED:
        # It fails where a time is stored, which nothing would ever compare again.
        place = GATE_PLACE if settings.mode is RunMode.GATE else RECORD_PLACES
        return bench.make_unmeasured_result(case, bench.look(place, case, None, case.next_key, trials=True))
    if settings.mode is RunMode.TOGETHER:
        from pytest_attnperf.session.together import measure_together

        return measure_together(bench, case)
    if settings.mode in RECORDING:
        from pytest_attnperf.session.recording import record_case

        recorded = record_case(bench, case)
        return recorded if settings.mode is RunMode.UPDATE else mark_calibrated(recorded)
    if settings.changed_only and settings.mode is RunMode.GATE:
        from pytest_attnperf.session.unchanged import judge_unchanged

        found = bench.find_stored(case)
        unchanged = judge_unchanged(bench, case, GATE_PLACE, found)
        if unchanged is not None and found is not None:
            return _with_local_note(bench, unchanged, found)
    plan = None if settings.mode in UNTIMED else settings.plan
    stages = case.breakdown and settings.mode is RunMode.GATE
    if bench.against is not None and settings.mode is RunMode.GATE:
        bench.against.start_template(bench.pool, GATE_PLACE)
    look = bench.look(GATE_PLACE, case, plan, case.next_key, stages=stages, trials=True)
    if look.ending is not Ending.MEASURED:
        return bench.make_unmeasured_result(case, look)
    return compare_look(bench, case, look)


def compare_look(bench: RunBench, case: Case, look: Look) -> CaseResult | Open:
    """Compares a measured case with its baseline; returns the result, or an Open if a second look must decide.

    Raises WorkerError and CaseFailedError, because it may record a missing local baseline or measure a gain again.
    """
    base = _assess_look(bench, case, look)
    if base.verdict is not Verdict.SAME:
        return base
    found = bench.find_stored(case)
    if found is None and bench.settings.record_local:
        from pytest_attnperf.session.recording import record_locally

        recorded = record_locally(bench, case)
        if recorded.verdict is not Verdict.RECORDED:
            return recorded
        said = f"{LOCAL} recorded in this run, in {len(recorded.first)} other processes"
        note = Note(NoteKind.LOCAL_NEW, said)
        found, base = bench.find_stored(case), replace(base, notes=(*base.notes, note))
    measured = Measured(case, look, base)
    if found is None:
        return _prefer_pairs(bench, _without_baseline(bench, measured), Open(measured, base))
    if bench.against is not None and bench.against.everything and bench.against.has_case(case.key):
        return _open_for_pairs(bench, measured, found)
    return compare_stored(bench, measured, found)


def compare_stored(bench: RunBench, measured: Measured, found: StoredEntry) -> CaseResult | Open:
    """Compares a first measurement with the stored times; returns the result, or an Open if a second must decide."""
    case, entry = measured.case, found.entry
    base = _with_local_note(bench, with_stored_processes(measured.base, found), found)
    differences = bench.list_differences(measured.look, found)
    if differences:
        text = f"not comparable: {differences[0]}"
        unlike = replace(base, verdict=Verdict.INCOMPARABLE, summary=text, reasons=tuple(differences))
        noted = replace(base, notes=(*base.notes, f"stored baseline: {text}"))
        return _prefer_pairs(bench, unlike, Open(measured, noted))
    screen = _screen_look(bench, measured, found)
    base = with_notes(base, case, found)
    if screen.decision.needs_second_look:
        fresh = Open(measured, base, found, pairs=False, screen=screen)
        seen = plausibility.with_changes(base, entry.launches)
        paired = Open(measured, seen, found, screen=screen, first_ratio=screen.decision.ratio)
        return _prefer_pairs(bench, fresh, paired)
    base = plausibility.with_changes(apply_decision(base, screen.decision), entry.launches)
    base = with_stored(base, case, found)
    if base.verdict is Verdict.INCOMPARABLE:
        return _prefer_pairs(bench, base, Open(measured, base))
    return recheck_gain(bench, case, base) if plausibility.is_gain(base) else base


def settle_case(bench: RunBench, opened: Open, sample: SampleSize | None = None) -> CaseResult:
    """Measures an open case again and returns its result. Raises WorkerError, CaseFailedError, and SampleCutError if
    time cut the sample too short."""
    if opened.pairs:
        settled = settle_in_pairs(bench, opened, sample)
        if settled is not None:
            return settled
        instead = opened.instead
        if instead is None:
            assert opened.stored is not None, "where nothing is stored, `instead` is set"
            instead = compare_stored(replace(bench, against=None), opened.measured, opened.stored)
        if isinstance(instead, CaseResult):
            return instead
        usual = bench.settings.second_look
        opened, sample = instead, None if sample is None else SampleSize(usual, usual, sample.go_on)
    return settle_by_processes(bench, opened, sample)


def _settle_costs(bench: RunBench, case: Case, result: CaseResult) -> CaseResult:
    return settle_costs(bench, case, result) if result.cost_limits else result


def _make_error(bench: RunBench, case: Case, error: Exception) -> CaseResult:
    """Returns the ERROR result of a case that broke, with the error's text, log and cause."""
    from pytest_attnperf.session.faults import with_fault

    result = case_result(case, Verdict.ERROR, first_line(error), reasons=(str(error),))
    if isinstance(error, WorkerError):
        reason = Note(error.kind or NoteKind.PLAIN, error.summary)
        result = replace(result, reasons=(reason,), log=error.log_tail)
    if isinstance(error, PoisonedError):
        result = replace(result, log=error.log_tail)
    return with_fault(bench, case, result, error)


def _assess_look(bench: RunBench, case: Case, look: Look) -> CaseResult:
    """Returns the result of a first measurement before any comparison: SAME as a placeholder if it may be compared,
    else SUSPICIOUS, INCOMPARABLE, or RIGHT in a run that does not gate."""
    measurement = join_measurement([look])
    base = with_figures(result_from_look(case, Verdict.SAME, "", look), bench.device_at())
    base = replace(
        base,
        first=measurement.processes,
        median_us=measurement.medians_us[0],
        canary=bench.collect_canaries([GATE_PLACE]) if bench.settings.gates else {},
    )
    base = bench.apply_floor(base)
    if base.verdict is Verdict.SUSPICIOUS:
        return base
    if not bench.settings.gates:
        how = f"timed by {look.summary.timer}" if look.summary is not None else "measured"
        how = "measured in the pytest process" if bench.settings.isolate == "none" else how
        return replace(base, verdict=Verdict.RIGHT, summary=f"{how}, which never gates")
    return reject_other_tree(base, [look]) or base


def _open_for_pairs(bench: RunBench, measured: Measured, found: StoredEntry) -> Open:
    """Returns an Open (an undecided case) that pairs with the base side decide. The stored entry serves to plan how
    many under a time budget, and decides if the base side cannot run the case."""
    alike = not bench.list_differences(measured.look, found)
    planned = alike and bench.settings.budget_seconds is not None
    return Open(
        measured,
        with_stored_processes(with_notes(measured.base, measured.case, found), found),
        found,
        comparable=alike,
        screen=_screen_look(bench, measured, found) if planned else None,
    )


def _prefer_pairs(bench: RunBench, outcome: CaseResult | Open, opened: Open) -> CaseResult | Open:
    """Returns `opened`, for pairs to decide, with `outcome` as its alternative; only `outcome` if there is no base side
    or it does not have the case."""
    if bench.against is None or not bench.against.has_case(opened.case.key):
        return outcome
    return replace(opened, instead=outcome)


def _screen_look(bench: RunBench, measured: Measured, found: StoredEntry) -> Screen:
    """Returns the comparison of a first measurement with the stored one: decision, noise and stored measurement."""
    case, stored, new = measured.case, found.entry.to_measurement(), join_measurement([measured.look])
    noise = bench.estimate_noise(case, stored, measured.base.floor_bound)
    return Screen(first_look(stored, new, noise, case.policy, bench.settings.cases), noise, stored)


def _with_local_note(bench: RunBench, base: CaseResult, found: StoredEntry) -> CaseResult:
    """Returns the result with a note if its baseline is in .attnperf/local, recorded on this machine."""
    if not found.path.is_relative_to(bench.local_root) or filter_notes(base.notes, NoteKind.LOCAL, NoteKind.LOCAL_NEW):
        return base
    note = Note(NoteKind.LOCAL, f"{LOCAL} recorded {found.entry.recorded}")
    return replace(base, notes=(*base.notes, note))


def _without_baseline(bench: RunBench, measured: Measured) -> CaseResult:
    """Returns the result of a case without a baseline on this GPU model: NO_BASELINE, or INCOMPARABLE if other models
    of its architecture have one. `new` is set if no model has one, and the base side does not have the case."""
    case, against, device = measured.case, bench.against, bench.device_at()
    arch, suite = device.arch, case.key.suite
    others = bench.store.list_products(arch, suite, case.key.entry)
    if against is not None and not against.has_case(case.key) and not others:
        text = f"new in this revision: {against.name} does not have it, so there is nothing to compare it with"
        new = replace(measured.base, verdict=Verdict.NO_BASELINE, summary=text, reasons=(text,))
        return replace(new, new=True, against=against.label)
    if others:
        text = f"a baseline is stored for {arch}/{', '.join(others)}, this is {arch}/{device.product}"
        reasons = (Note(NoteKind.OTHER_PRODUCT, text),)
        return replace(measured.base, verdict=Verdict.INCOMPARABLE, summary=text, reasons=reasons)
    text = f"no baseline on {arch}/{device.product}"
    store = bench.settings.describe_recording(case.nodeid)
    return replace(measured.base, verdict=Verdict.NO_BASELINE, summary=text, reasons=(text, store))
