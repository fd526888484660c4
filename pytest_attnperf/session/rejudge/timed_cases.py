"""Judges a run again from its recorded data, against baselines that the run cannot have changed. Pure.

For setups where one machine measures and another judges, above all for pull requests: the measuring job runs code
nobody has read, the judging job reads its results file as data and runs none of it. No verdict, summary, ratio,
threshold, policy, count or finding of the file is trusted. Each is recomputed from the samples and the errors of the
checks, under the policy that is stored with the baseline.

That prevents forged verdicts, loosened policies and tolerances, dropped cases and edited baselines. It cannot prevent
invented samples: code in the measuring job can write a file whose blocks, errors, budgets, launches, canaries and
fingerprints agree with each other and were never measured. `ON_ITS_WORD` tells the reader so. What a file states
against itself (INCORRECT, ERROR, SUSPICIOUS, another tree's code) is kept: nobody gains by that.
"""

from __future__ import annotations

import functools
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from pytest_attnperf.baselines.store import BaselineStore, StoredEntry
from pytest_attnperf.environment.device_specs import spec_for
from pytest_attnperf.errors import BaselineError, UsageError, quote_nodeid
from pytest_attnperf.gate.canary_drift import compare_canaries
from pytest_attnperf.gate.decide import Decision, first_look, second_look
from pytest_attnperf.gate.interleaved import interleaved_look
from pytest_attnperf.gate.not_the_code import can_be_explained
from pytest_attnperf.gate.policy import Policy, require_tier
from pytest_attnperf.records import NotProvenRightError, ProcessSummary, Verdict
from pytest_attnperf.records.notes import Note, NoteKind, filter_notes
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.results import GATED, CaseResult, RunResult
from pytest_attnperf.session import plausibility
from pytest_attnperf.session.case_records import (
    apply_decision,
    apply_quarantine,
    list_case_differences,
    list_shared_notes,
    median_us_of,
    with_creep,
    with_figures,
    with_stored_processes,
)
from pytest_attnperf.session.consistent import find_contradictions, note_contradiction
from pytest_attnperf.session.cost_looks import rejudge_costs
from pytest_attnperf.session.not_the_code import Suspect, explain_recorded_suspect
from pytest_attnperf.session.rejudge import claims
from pytest_attnperf.session.rejudge.compiled_kernels import rejudge_code
from pytest_attnperf.session.rejudge.findings import (
    find_missing_cases,
    find_other_base,
    find_other_commit,
    find_unmeasured_devices,
    require_full,
)
from pytest_attnperf.session.settings import Case
from pytest_attnperf.stats.noise import NoiseEstimate
from pytest_attnperf.stats.pair_ratios import pair_noise
from pytest_attnperf.workers.source_tree import Revisions

ON_ITS_WORD = (
    "judged from recorded figures: code in the measuring job can invent samples, and nothing in a results file shows "
    "that; verdicts, policies, baselines and missing cases are not taken from the file"
)
"""A line for the reader of the verdict."""

NO_SECOND_LOOK = "no second look was taken"
"""Part of the summary of a suspect without a second look in the measuring run."""

UNJUDGEABLE = (
    BaselineError, UsageError, NotProvenRightError, ValueError, TypeError, ArithmeticError, LookupError, AttributeError,
    OSError,
)  # fmt: skip
"""Errors that computations raise for invented figures."""

AGAINST_ITSELF = frozenset({Verdict.INCORRECT, Verdict.ERROR, Verdict.SUSPICIOUS})


@dataclass(frozen=True)
class RejudgeSettings:
    """Settings of the judge's command line; None keeps what is stored with each baseline.

    filtered   the run was of a part of the suite on purpose: an entry without a case is no finding
    suites     suites that must be present; empty for every suite that has a baseline on the run's device
    devices    devices ('sm_90/h200', or 'any') that a case must have been measured on
    archs      architectures whose stored kernels must be present, 'all' for every stored one
    commits    full ids of the commits that a run may be of; empty for any
    base_has   returns whether a commit is in the history of the base; None where the base is no revision
    revisions  with the base revision; None where the base is no revision
    tier       'nightly' where cases whose stored policy is nightly must be present, too
    today      the date that decides about quarantines, which come from the baselines
    """

    threshold_percent: float | None = None
    floor_us: float | None = None
    fail_on: tuple[str, ...] | None = None
    filtered: bool = False
    suites: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    base_has: Callable[[str], bool] | None = None
    revisions: Revisions | None = None
    tier: str = ""
    today: date = field(default_factory=date.today)

    def __post_init__(self) -> None:
        require_tier(self.tier, "--tier")
        require_full(self.commits)
        if self.filtered and self.archs:
            raise UsageError("--arch requires every stored kernel, --filtered allows missing ones; give only one")

    def make_policy(self, stored: Mapping[str, Any]) -> Policy:
        """Returns the stored policy with the command line's settings in it. Raises UsageError if it is invalid."""
        asked = {name: getattr(self, name) for name in ("threshold_percent", "floor_us", "fail_on")}
        return Policy.from_record({**stored, **{name: value for name, value in asked.items() if value is not None}})


def rejudge_run(run: RunResult, store: BaselineStore, settings: RejudgeSettings) -> RunResult:
    """Returns one run with every verdict made again from its data. Raises UsageError if that is not possible."""
    return rejudge_all([("the results file", run)], store, settings)[0][1]


def rejudge_all(
    runs: Sequence[tuple[str, RunResult]], store: BaselineStore, settings: RejudgeSettings
) -> list[tuple[str, RunResult]]:
    """Returns (file name, run) with every verdict made again from the data, each on the run's own device.

    Cases may be missing in one run and present in another; findings about missing cases go to the last run. Raises
    UsageError for a run that is no complete gating run, and for an invalid policy of the command line.
    """
    settings.make_policy({})
    for source, run in runs:
        _require_judgeable(source, run)
    judged = [(source, bench.run_result()) for source, bench in _set_up_benches(runs, store, settings)]
    whole = [run for _, run in judged]
    gone = find_unmeasured_devices(whole, settings.devices)
    gone += (
        [] if settings.filtered else find_missing_cases(whole, store, settings.suites, settings.archs, settings.tier)
    )
    if not gone:
        return judged
    source, last = judged[-1]
    return [*judged[:-1], (source, replace(last, findings=(*last.findings, *gone)))]


def _set_up_benches(
    runs: Sequence[tuple[str, RunResult]], store: BaselineStore, settings: RejudgeSettings
) -> list[tuple[str, _Bench]]:
    """Returns (file name, bench) of each run. The false-alarm rate belongs to a run, not to one of its shards."""
    benches = [(source, _Bench(run, store, settings)) for source, run in runs]
    compared: Counter[str] = Counter()
    for _, bench in benches:
        if bench.run.shards:
            compared[bench.run.shards[0].manifest] += bench.compared_here
    for _, bench in benches:
        if bench.run.shards:
            bench.compared_elsewhere = compared[bench.run.shards[0].manifest] - bench.compared_here
    return benches


def _require_judgeable(source: str, run: RunResult) -> None:
    """Raises UsageError for a run that does not gate, is incomplete, or names no device."""
    judged = len(run.cases) + len(run.code)
    if run.mode != "gate":
        raise UsageError(f"{source} is of a run of mode {run.mode!r}; only one of pytest --attnperf can be judged")
    if not run.complete or judged < run.selected:
        raise UsageError(
            f"{source} is incomplete: {judged} of {run.selected} selected cases have a result; measure again"
        )
    if run.cases and run.device is None:
        raise UsageError(f"{source} names no device for its {len(run.cases)} cases: no worker answered; measure again")


@dataclass
class _Bench:
    """One run, and what its cases are compared with. `compared_elsewhere` is the number of cases that other shards of
    the same run compare."""

    run: RunResult
    store: BaselineStore
    settings: RejudgeSettings
    measured: dict[str, tuple[PairSummary, ...]] = field(default_factory=dict)
    bounds: dict[str, str] = field(default_factory=dict)
    compared_elsewhere: int = 0

    def run_result(self) -> RunResult:
        """Returns the run with verdicts, findings and counts made again; those of the file are dropped."""
        cases = tuple(self._judge_case(case) for case in self.run.cases)
        code = tuple(rejudge_code(result, self.store.roots) for result in self.run.code)
        verdicts = [*(case.verdict for case in cases), *(result.verdict for result in code)]
        noted = [(case.key, case.notes) for case in cases] + [(result.key, result.notes) for result in code]
        said = list_shared_notes(noted, NoteKind.LOOSENED)
        said += [f"{key}: {note}" for key, notes in noted for note in filter_notes(notes, NoteKind.CREPT)]
        origin = [
            *find_other_commit(self.run, self.settings.commits),
            *find_other_base(self.run, self.settings.base_has),
        ]
        sides = {case.against for case in cases if case.pairs}
        return replace(
            self.run,
            cases=cases,
            code=code,
            findings=(*origin, *said),
            against=self.run.against if self.run.against in sides else "",
            gated=sum(verdict in GATED for verdict in verdicts) + sum(case.unchanged for case in cases),
            selected=len(verdicts),
            baseline_paths=(),
        )

    @property
    def compared_count(self) -> int:
        """Number of cases that share the false-alarm rate: those that this run and its other shards compare."""
        return self.compared_here + self.compared_elsewhere

    @functools.cached_property
    def compared_here(self) -> int:
        """Number of cases that this run compares, by pairs or with an entry."""
        return len({case.key for case in self.run.cases if case.pairs or self._has_entry(case)})

    def _has_entry(self, case: CaseResult) -> bool:
        try:
            return self._find_entry(case) is not None
        except BaselineError:
            return False

    def _find_entry(self, case: CaseResult) -> StoredEntry | None:
        assert self.run.device is not None
        return self.store.find(self.run.device.arch, self.run.device.product, case.key.suite, case.key.entry)

    def _judge_case(self, case: CaseResult) -> CaseResult:
        """Returns the case's new result. A case that cannot be read or compared is an ERROR, no exception."""
        policy = self.settings.make_policy({})
        try:
            found = self._find_entry(case)
            policy = self.settings.make_policy({} if found is None else found.policy)
            base = claims.without_claims(case, policy)
            result = self._judge_by_claim(case, base, found, policy)
        except UNJUDGEABLE as error:
            result = claims.mark_unjudgeable(claims.without_claims(case, policy), error)
        if result.verdict is not case.verdict:
            result = replace(result, notes=(*result.notes, f"the results file says {case.verdict.value}"))
        result = replace(result, fails=result.fails or result.verdict in policy.fail_on)
        return apply_quarantine(result, policy, self.settings.today)

    def _judge_by_claim(
        self, case: CaseResult, base: CaseResult, found: StoredEntry | None, policy: Policy
    ) -> CaseResult:
        """Returns the result of a case: the file's verdict if it is unfavourable to the case, the verdict on wrong or
        contradictory figures, else that of `_judge_timed`."""
        if case.verdict in AGAINST_ITSELF or case.verdict is Verdict.UNSUPPORTED:
            said = replace(base, verdict=case.verdict, summary=case.summary, reasons=case.reasons)
            if case.verdict is not Verdict.UNSUPPORTED or found is None:
                return said
            return claims.mark_gone(said, f"unsupported now, but a baseline is stored in {found.path.name}")
        wrong = claims.judge_proof(case, base, found)
        if wrong is not None:
            return wrong
        if case.verdict is Verdict.RIGHT:
            return claims.judge_untimed(case, base, found)
        assert self.run.device is not None
        stored: tuple[ProcessSummary, ...] = () if found is None else found.entry.processes
        reasons = [note_contradiction(text) for text in find_contradictions(case, self.run.device, stored)]
        if reasons:
            return replace(base, verdict=Verdict.ERROR, summary=reasons[0].text, reasons=tuple(reasons))
        judged = claims.not_comparable_by_itself(case, self._judge_timed(case, base, found, policy))
        if found is None:
            return judged
        return rejudge_costs(judged, found, self.compared_count, policy.suite_false_alarm_rate)

    def _judge_timed(self, case: CaseResult, base: CaseResult, found: StoredEntry | None, policy: Policy) -> CaseResult:
        """Returns the verdict of a case whose figures are consistent, by the steps of `session.case_judge`."""
        assert self.run.device is not None
        assert case.fingerprint is not None
        device = claims.device_of(case.fingerprint, self.run.device)
        base = with_figures(replace(base, median_us=case.first[0].median_us), device)
        base = plausibility.judge_by_floor(base, spec_for(device))
        if device.arch.startswith("gfx") and base.verdict is not Verdict.SUSPICIOUS:
            base = plausibility.judge_by_code(base, {code.isa_hash: code for code in case.code}, matrix=False)
        if base.verdict is Verdict.SUSPICIOUS:
            return base
        judged = Case(case.key, base.nodeid, policy)
        if found is None:
            return self._judge_by_pairs(case, base, policy) if case.pairs else self._without_baseline(base)
        base = claims.with_file_policy(with_stored_processes(base, found), case, found)
        differences = list_case_differences(case, found)
        if differences:
            text = f"not comparable: {differences[0]}"
            if case.pairs:
                settled = replace(base, notes=(*base.notes, f"stored baseline: {text}"))
                return self._judge_by_pairs(case, settled, policy)
            return replace(base, verdict=Verdict.INCOMPARABLE, summary=text, reasons=tuple(differences))
        return self._judge_against_stored(case, base, found, judged)

    def _judge_against_stored(self, case: CaseResult, base: CaseResult, found: StoredEntry, judged: Case) -> CaseResult:
        entry, new = found.entry, claims.make_measurement(case, case.first)
        stored, policy = entry.to_measurement(), judged.policy
        noise = self._estimate_noise(case, found, base.floor_bound)
        first = first_look(stored, new, noise, policy, self.compared_count)
        if case.pairs:
            ratio = first.ratio if first.needs_second_look else None
            base = plausibility.with_changes(base, entry.launches)
            return with_creep(self._judge_by_pairs(case, base, policy, ratio), judged, found)
        if not first.needs_second_look:
            return claims.with_jump_note(claims.apply_stored_decision(base, first, found, judged))
        if not case.second:
            return _without_second_look(base, first, found, judged)
        assert case.fingerprint is not None
        changes = case.fingerprint.list_changes(found.fingerprint)
        decide = functools.partial(
            second_look,
            stored,
            new,
            noise=noise,
            policy=policy,
            cases=self.compared_count,
            toolchain_changes=changes,
            canary=compare_canaries(case.canary, found.canary),
            bound=base.floor_bound,
        )
        decision = decide(claims.make_measurement(case, case.second))
        if can_be_explained(decision, changes):
            suspect = Suspect(entry, decision, base.nodeid, self.settings.revisions)
            decision = explain_recorded_suspect(
                suspect, case, lambda: decide(claims.make_measurement(case, case.pinned))
            )
        return claims.apply_stored_decision(replace(base, median_us=median_us_of(case.second)), decision, found, judged)

    def _judge_by_pairs(
        self, case: CaseResult, base: CaseResult, policy: Policy, first_ratio: float | None = None
    ) -> CaseResult:
        """Returns the result with the verdict of its pairs alone, whose base side the same run measured."""
        name, pairs = str(case.key), case.pairs
        self.measured[name], self.bounds[name] = pairs, base.floor_bound
        centre = statistics.median(pair.base_us for pair in pairs)
        noise = pair_noise(self.measured, bounds=self.bounds).estimate_noise(
            name, centre, pairs[0].timer, base.floor_bound
        )
        decision = interleaved_look(
            pairs,
            noise,
            policy,
            self.compared_count,
            first_ratio=first_ratio,
            base_label=case.against,
            bound=base.floor_bound,
        )
        new_us = statistics.median(pair.new_us for pair in pairs)
        return replace(apply_decision(base, decision), baseline_us=centre, median_us=new_us)

    def _estimate_noise(self, case: CaseResult, found: StoredEntry, bound: str) -> NoiseEstimate | None:
        """Returns the noise between processes of unchanged code, pooled over similar stored cases of the suite; None if
        none of them tells it."""
        assert self.run.device is not None
        suite, processes = case.key.suite, found.entry.processes
        model = self.store.noise_model(self.run.device.arch, self.run.device.product, suite)
        return model.estimate_noise(case.key.entry, median_us_of(processes), processes[0].timer, bound)

    def _without_baseline(self, base: CaseResult) -> CaseResult:
        assert self.run.device is not None
        arch, product = self.run.device.arch, self.run.device.product
        if others := self.store.list_products(arch, base.key.suite, base.key.entry):
            text = f"a baseline is stored for {arch}/{', '.join(others)}, this is {arch}/{product}"
            reason = Note(NoteKind.OTHER_PRODUCT, text)
            return replace(base, verdict=Verdict.INCOMPARABLE, summary=text, reasons=(reason,))
        text = f"no baseline on {arch}/{product}"
        store = f"store one with: pytest --update-baselines {quote_nodeid(base.nodeid)}"
        return replace(base, verdict=Verdict.NO_BASELINE, summary=text, reasons=(text, store))


def _without_second_look(base: CaseResult, first: Decision, found: StoredEntry, judged: Case) -> CaseResult:
    """Returns UNDECIDED: a first look needs a second one, which the file lacks. The case fails if its first look
    was SLOWER, so that leaving out the second look is no way to pass."""
    text = f"{first.measured or first.summary}, but {NO_SECOND_LOOK}"
    undecided = replace(first, verdict=Verdict.UNDECIDED, summary=text)
    return replace(claims.apply_stored_decision(base, undecided, found, judged), fails=first.verdict is Verdict.SLOWER)
