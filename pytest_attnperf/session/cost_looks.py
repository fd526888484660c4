"""Compares what a case costs besides its time with what is stored: in its two looks, in fresh processes if need be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_attnperf.baselines.schema import Entry
from pytest_attnperf.baselines.store import StoredEntry
from pytest_attnperf.gate.cost_growth import CostGrowth, find_growth, list_incomparable
from pytest_attnperf.records import ProcessSummary, Verdict
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.case_records import join_measurement, list_case_differences
from pytest_attnperf.session.looking import RunBench
from pytest_attnperf.session.second_looks import bytes_of, take_fresh_looks
from pytest_attnperf.session.settings import Case
from pytest_attnperf.workers.look import Ending

REPLACED = frozenset({*(Verdict.SAME, Verdict.FASTER, Verdict.UNDECIDED), *(Verdict.MOVED, Verdict.DRIFT)})
"""Verdicts that GREW replaces. A case with another verdict by time keeps it, and gets the growth as a reason."""

JUDGED = REPLACED | {Verdict.SLOWER, Verdict.ENVIRONMENT}
"""Verdicts of cases whose entry is comparable: only their costs are compared."""

UNCONFIRMED = "but no second look was taken"


def settle_costs(bench: RunBench, case: Case, result: CaseResult) -> CaseResult:
    """Returns the result of a case whose test gates costs: GREW if one exceeds what is allowed over the stored one.

    A suspect without a second look by time gets one here, in fresh processes; that result if one of them is wrong.
    Raises WorkerError and CaseFailedError as a look does.
    """
    found = bench.find_stored(case) if result.verdict in JUDGED else None
    if found is None or list_case_differences(result, found):
        return result
    if _find_growth(result, found.entry) and not result.second:
        looks = take_fresh_looks(bench, case, None, bytes_of(result))
        wrong = next((look for look in looks if look.ending is not Ending.MEASURED), None)
        if wrong is not None:
            return replace(bench.make_unmeasured_result(case, wrong), first=result.first)
        result = replace(result, costly=join_measurement(looks).processes)
    return judge_costs(result, found)


def rejudge_costs(result: CaseResult, found: StoredEntry) -> CaseResult:
    """Returns what `judge_costs` does for a case of a results file: limits of the entry replace those of the file."""
    if result.verdict not in JUDGED or list_case_differences(result, found):
        return result
    return judge_costs(replace(result, cost_limits={**result.cost_limits, **found.entry.cost_limits}), found)


def judge_costs(result: CaseResult, found: StoredEntry) -> CaseResult:
    """Returns the result with notes on costs that are not compared. It fails if a cost grew in both looks, and is GREW
    if it is SAME, FASTER, UNDECIDED, MOVED or DRIFT by time; but ENVIRONMENT, without failing, if the toolchain is not
    the stored one. UNDECIDED, and it fails, if growth lacks a second look."""
    entry = found.entry
    apart = list_incomparable(result.cost_limits, _values_of(entry.processes), _new_values(result))
    said = [f"{name} is not compared: {why}" for name, why in apart.items()]
    result = replace(result, notes=(*result.notes, *said))
    grown = _find_growth(result, entry)
    if not grown:
        return result
    reasons: tuple[str, ...] = tuple(Note(NoteKind.COST_GREW, one.text, about=one.name) for one in grown)
    text = grown[0].text if len(grown) == 1 else "; ".join(one.headline for one in grown)
    if not (result.second or result.costly):
        text = f"{text}, {UNCONFIRMED}"
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
    return _values_of((*result.first, *(result.second or result.costly)))


def _values_of(processes: Sequence[ProcessSummary]) -> list[Mapping[str, float]]:
    return [process.costs for process in processes]
