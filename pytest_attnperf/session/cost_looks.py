"""Compares what a case costs besides its time with what is stored: in its two looks, in fresh processes if need be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_attnperf.baselines.schema import Entry
from pytest_attnperf.baselines.store import StoredEntry
from pytest_attnperf.gate.cost_growth import CostGrowth, count_needed, find_growth, list_incomparable
from pytest_attnperf.records import ProcessSummary, Verdict
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.case_records import join_measurement, list_case_differences
from pytest_attnperf.session.looking import SECOND_LOOK_PLACES, RunBench
from pytest_attnperf.session.second_looks import bytes_of, take_fresh_looks
from pytest_attnperf.session.settings import Case
from pytest_attnperf.workers.look import Ending, Look

REPLACED = frozenset({*(Verdict.SAME, Verdict.FASTER, Verdict.UNDECIDED), *(Verdict.MOVED, Verdict.DRIFT)})
"""Verdicts that GREW replaces. A case with another verdict by time keeps it, and gets the growth as a reason."""

JUDGED = REPLACED | {Verdict.SLOWER, Verdict.ENVIRONMENT}
"""Verdicts of cases whose entry is comparable: only their costs are compared."""

UNCONFIRMED = "but in {taken} of the {needed} processes that are needed"


@dataclass(frozen=True)
class CostRule:
    """How sure growth must be: `compared` costs of the run share its false-alarm rate `rate`."""

    compared: int
    rate: float

    def count_needed(self, entry: Entry) -> int:
        """Returns how many new processes must all exceed those of the entry."""
        return count_needed(len(entry.processes), self.compared, self.rate)


def settle_costs(bench: RunBench, case: Case, result: CaseResult) -> CaseResult:
    """Returns the result of a case whose test gates costs: GREW if one exceeds what is allowed over the stored one.

    A suspect is measured in fresh processes, beyond those of a second look by time, until enough exceed every stored
    one or one does not; that result if one of them is wrong. Raises WorkerError and CaseFailedError as a look does.
    """
    found = bench.find_stored(case) if result.verdict in JUDGED else None
    if found is None or list_case_differences(result, found):
        return result
    rule = CostRule(bench.settings.cases * len(result.cost_limits), case.policy.suite_false_alarm_rate)
    if _find_growth(result, found.entry) and not result.second:
        looks = take_fresh_looks(bench, case, None, bytes_of(result))
        if (wrong := _find_wrong(looks)) is not None:
            return replace(bench.make_unmeasured_result(case, wrong), first=result.first)
        result = replace(result, costly=join_measurement(looks).processes)
    needed = rule.count_needed(found.entry)
    while _find_growth(result, found.entry) and len(_new_values(result)) < needed:
        look = bench.look(SECOND_LOOK_PLACES, case, bench.settings.plan, None, unused=True)
        if (wrong := _find_wrong([look])) is not None:
            return replace(bench.make_unmeasured_result(case, wrong), first=result.first)
        result = replace(result, costly=(*result.costly, *join_measurement([look]).processes))
    return judge_costs(result, found, rule)


def _find_wrong(looks: Sequence[Look]) -> Look | None:
    """Returns the first look that is no measurement; None if all are."""
    return next((look for look in looks if look.ending is not Ending.MEASURED), None)


def rejudge_costs(result: CaseResult, found: StoredEntry, compared: int, rate: float) -> CaseResult:
    """Returns what `judge_costs` does for a case of a results file: limits of the entry replace those of the file.
    `compared` cases of the file share the false-alarm rate `rate`."""
    if result.verdict not in JUDGED or list_case_differences(result, found):
        return result
    limits = {**result.cost_limits, **found.entry.cost_limits}
    return judge_costs(replace(result, cost_limits=limits), found, CostRule(compared * len(limits), rate))


def judge_costs(result: CaseResult, found: StoredEntry, rule: CostRule) -> CaseResult:
    """Returns the result with notes on costs that are not compared. It fails if a cost grew in both looks, and is GREW
    if it is SAME, FASTER, UNDECIDED, MOVED or DRIFT by time; but ENVIRONMENT, without failing, if the toolchain is not
    the stored one. UNDECIDED, and it fails, if too few processes show the growth for `rule`."""
    entry = found.entry
    apart = list_incomparable(result.cost_limits, _values_of(entry.processes), _new_values(result))
    said = [f"{name} is not compared: {why}" for name, why in apart.items()]
    result = replace(result, notes=(*result.notes, *said))
    grown = _find_growth(result, entry)
    if not grown:
        return result
    reasons: tuple[str, ...] = tuple(Note(NoteKind.COST_GREW, one.text, about=one.name) for one in grown)
    text = grown[0].text if len(grown) == 1 else "; ".join(one.headline for one in grown)
    taken, needed = len(_new_values(result)), rule.count_needed(entry)
    if taken < needed:
        text = f"{text}, {UNCONFIRMED.format(taken=taken, needed=needed)}"
        return replace(result, verdict=Verdict.UNDECIDED, summary=text, reasons=(text, *result.reasons), fails=True)
    changes = [] if result.fingerprint is None else result.fingerprint.list_changes(found.fingerprint)
    verdict = Verdict.ENVIRONMENT if changes else Verdict.GREW
    if changes:
        about = "; ".join(changes)
        text = f"{text}, but the toolchain changed: {about}"
        reasons = (*reasons, Note(NoteKind.TOOLCHAIN, "what a library allocates is not the code's", about))
    fails = result.fails or not changes
    if result.verdict not in REPLACED:
        summary = f"{result.summary}; {text}"
        return replace(result, summary=summary, reasons=(*result.reasons, *reasons), fails=fails)
    return replace(result, verdict=verdict, summary=text, reasons=(*reasons, *result.reasons), fails=fails)


def _find_growth(result: CaseResult, entry: Entry) -> list[CostGrowth]:
    return find_growth(result.cost_limits, _values_of(entry.processes), _new_values(result))


def _new_values(result: CaseResult) -> list[Mapping[str, float]]:
    return _values_of((*result.first, *result.second, *result.costly))


def _values_of(processes: Sequence[ProcessSummary]) -> list[Mapping[str, float]]:
    return [process.costs for process in processes]
