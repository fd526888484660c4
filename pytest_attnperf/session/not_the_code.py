"""Checks whether a suspect runs the stored code, and measures it again with its autotuners' stored choices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pytest_attnperf.baselines.schema import Entry
from pytest_attnperf.errors import CaseFailedError, WorkerError, quote_nodeid
from pytest_attnperf.gate import not_the_code as gate
from pytest_attnperf.gate.decide import Decision
from pytest_attnperf.gate.not_the_code import Ran
from pytest_attnperf.measure.pinned_backend import AS_STORED, PINNED_KEY
from pytest_attnperf.records import Measurement, ProcessSummary, Verdict
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.case_records import first_line, join_measurement, median_us_of
from pytest_attnperf.session.plausibility import with_isa_hashes
from pytest_attnperf.workers.look import Ending, Look
from pytest_attnperf.workers.source_tree import Revisions, strip_libraries, top_folders

Again = Callable[[], Sequence[Look]]
"""Looks at the case in as many processes as the second look, each run with the stored configuration."""

Decide = Callable[[Measurement], Decision]
"""Returns the second look's decision by these processes."""

NO_TIME = "the run had no time left"
UNSAID = "the backend does not report its configuration"


@dataclass(frozen=True)
class Explained:
    """A second look's decision, after checking whether the code or something else explains it.

    pinned   processes that ran with the stored choice
    wrong    the first of them whose result is wrong; the case is then judged by it
    """

    decision: Decision
    pinned: tuple[ProcessSummary, ...] = ()
    wrong: Look | None = None


@dataclass(frozen=True)
class Suspect:
    """The entry and the decision of a second look, and what may explain its slowdown.

    nodeid      of its test
    revisions   with the base revision; None where none is known
    """

    entry: Entry
    decision: Decision
    nodeid: str
    revisions: Revisions | None = None


def explain_suspect(suspect: Suspect, looks: Sequence[Look], again: Again, decide: Decide) -> Explained:
    """Returns the suspect's decision, with the verdict MOVED, DRIFT or STALE if its slowdown is not due to the code.

    looks    measurements with the configuration that the case chose by itself
    again    measures once more with the stored configuration
    decide   compares a measurement with the stored one

    If the stored configuration cannot be timed, a reason says so; nothing is raised.
    """
    entry, decision, ran = suspect.entry, suspect.decision, [_collect_what_ran(look) for look in looks]
    if gate.is_moved(entry, ran):
        return Explained(gate.as_moved(decision))
    if (stale := _decide_stale(suspect, ran, looks[0].final.sources)) is not None:
        return Explained(stale)
    choices = gate.choices_apart(entry, ran)
    if not choices or not gate.has_same_sources(entry, ran):
        return Explained(gate.with_reason(decision, gate.find_missing_evidence(entry, ran)))
    try:
        pinned = again()
    except (CaseFailedError, WorkerError) as error:
        return Explained(gate.with_reason(decision, gate.note_not_pinned(first_line(error))))
    return _explain_by_stored_choice(entry, decision, pinned, choices, decide)


def explain_recorded_suspect(suspect: Suspect, case: CaseResult, decide: Callable[[], Decision]) -> Decision:
    """Returns what `explain_suspect` does, for a case of a results file: MOVED or DRIFT only if the file says so too.

    decide   returns the decision of a second look by its `pinned` processes

    The file does not contain what later processes ran, so its own verdict is required, too.
    """
    entry, decision = suspect.entry, suspect.decision
    ran = [Ran(case.launches, case.config, case.source_id)]
    choices = gate.choices_apart(entry, ran)
    if case.verdict is Verdict.MOVED and gate.is_moved(entry, ran):
        return gate.as_moved(decision)
    if (stale := _decide_stale(suspect, ran, case.sources)) is not None:
        return stale
    tuned = case.verdict in (Verdict.DRIFT, Verdict.MOVED) and choices and gate.has_same_sources(entry, ran)
    if not tuned or not case.pinned:
        return gate.with_reason(decision, gate.find_missing_evidence(entry, ran))
    said = decide()
    if said.verdict is Verdict.SAME:
        return gate.as_drift(decision, said, median_us_of(case.pinned), choices)
    if case.verdict is Verdict.MOVED:
        return gate.as_moved_and_tuned(decision, said, choices)
    return gate.with_reason(decision, gate.note_still_slow(said))


def _explain_by_stored_choice(
    entry: Entry, decision: Decision, looks: Sequence[Look], choices: Sequence[str], decide: Decide
) -> Explained:
    """Returns the decision after `looks` with the autotuners' stored choices (`choices` differ from them): DRIFT if
    these are as fast as stored, MOVED if slow though nothing else changed; else unchanged, with a reason. Sets `wrong`
    to a look that computed a wrong result."""
    wrong = next((look for look in looks if look.ending is Ending.INCORRECT), None)
    if wrong is not None:
        return Explained(decision, wrong=wrong)
    without = [_reason_not_timed(look) for look in looks if look.ending is not Ending.MEASURED]
    if without or not looks:
        return Explained(gate.with_reason(decision, gate.note_not_pinned(next(iter(without), NO_TIME))))
    ran = [_collect_what_ran(look) for look in looks]
    said = [look.final.config.get(PINNED_KEY, "") for look in looks]
    unlike = [text or UNSAID for text in said if text != AS_STORED] or gate.list_changes(entry, ran)
    if unlike or not gate.has_same_sources(entry, ran):
        why = unlike[0] if unlike else gate.OTHER_SOURCES
        return Explained(gate.with_reason(decision, gate.note_not_pinned(why)))
    measured = join_measurement(list(looks))
    pinned = decide(measured)
    if pinned.verdict is Verdict.SAME:
        drift = gate.as_drift(decision, pinned, median_us_of(measured.processes), choices)
        return Explained(drift, measured.processes)
    if gate.is_moved(entry, ran):
        return Explained(gate.as_moved_and_tuned(decision, pinned, choices), measured.processes)
    return Explained(gate.with_reason(decision, gate.note_still_slow(pinned)), measured.processes)


def _reason_not_timed(look: Look) -> str:
    return next((line for reason in look.reasons for line in reason.splitlines()), look.note or look.ending.value)


def _decide_stale(suspect: Suspect, ran: Sequence[Ran], loaded: Iterable[str]) -> Decision | None:
    """Returns STALE if the base revision already has the sources that ran, and the entry has others; else None."""
    revisions, entry, folders = suspect.revisions, suspect.entry, top_folders(loaded)
    if revisions is None or gate.has_same_sources(entry, ran):
        return None
    base = revisions.sources_of(revisions.base, folders)
    stored = strip_libraries(entry.source_id) or revisions.sources_of(entry.commit, folders)
    if not gate.is_stale(stored, ran, base):
        return None
    command = f"pytest --update-baselines {quote_nodeid(suspect.nodeid)}"
    return gate.as_stale(suspect.decision, entry, revisions.base, command)


def _collect_what_ran(look: Look) -> Ran:
    final = with_isa_hashes(look.final)
    return Ran(final.launches, final.config, final.source_id)
