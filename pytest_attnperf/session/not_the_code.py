"""Asks of a suspect whether its code is the stored one, and looks again with the stored choice of its autotuners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_attnperf.baselines.schema import Entry
from pytest_attnperf.errors import CaseFailedError, WorkerError
from pytest_attnperf.gate import not_the_code as gate
from pytest_attnperf.gate.decide import Decision
from pytest_attnperf.gate.not_the_code import Ran
from pytest_attnperf.measure.pinned_backend import AS_STORED, PINNED_KEY
from pytest_attnperf.records import Measurement, ProcessSummary, Verdict
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.case_records import first_line, joined_measurement, median_us_of
from pytest_attnperf.session.plausibility import with_isa
from pytest_attnperf.workers.look import Ending, Look

Again = Callable[[], Sequence[Look]]
"""Looks at the case in as many processes as the second look, each told to run with the stored configuration."""

Decide = Callable[[Measurement], Decision]
"""What a second look by these processes says."""

NO_TIME = "the time of the run ended"
UNSAID = "the backend does not say what it ran with"


@dataclass(frozen=True)
class Explained:
    """What a second look says once it is known what ran.

    pinned   processes that ran with the stored choice
    wrong    the first of them that is not right, or could not be timed; the case is then judged by it
    """

    decision: Decision
    pinned: tuple[ProcessSummary, ...] = ()
    wrong: Look | None = None


def explained(entry: Entry, decision: Decision, looks: Sequence[Look], again: Again, decide: Decide) -> Explained:
    """The decision, or MOVED or DRIFT in its place.

    looks   every one that was taken with what the case chose by itself

    Does not raise where the stored choice cannot be timed: a reason says so.
    """
    ran = [_ran(look) for look in looks]
    if gate.is_moved(entry, ran):
        return Explained(gate.as_moved(decision))
    choices = gate.choices_apart(entry, ran)
    if not choices or not gate.same_sources(entry, ran):
        return Explained(gate.with_reason(decision, gate.missing(entry, ran)))
    try:
        pinned = again()
    except (CaseFailedError, WorkerError) as error:
        return Explained(gate.with_reason(decision, gate.not_pinned(first_line(error))))
    return _with_stored_choice(entry, decision, pinned, choices, decide)


def recounted(entry: Entry, decision: Decision, case: CaseResult, decide: Callable[[], Decision]) -> Decision:
    """The same from what a results file holds of the case, as far as its data bear out what it says.

    decide   what a second look by its `pinned` processes says

    What later processes ran is not in the file, so that its verdict is asked for, too.
    """
    ran = [Ran(case.launches, case.config, case.source_id)]
    choices = gate.choices_apart(entry, ran)
    if case.verdict is Verdict.MOVED and gate.is_moved(entry, ran):
        return gate.as_moved(decision)
    tuned = case.verdict in (Verdict.DRIFT, Verdict.MOVED) and choices and gate.same_sources(entry, ran)
    if not tuned or not case.pinned:
        return gate.with_reason(decision, gate.missing(entry, ran))
    said = decide()
    if said.verdict is Verdict.SAME:
        return gate.as_drift(decision, said, median_us_of(case.pinned), choices)
    if case.verdict is Verdict.MOVED:
        return gate.as_moved_and_tuned(decision, said, choices)
    return gate.with_reason(decision, gate.still_slow(said))


def _with_stored_choice(
    entry: Entry, decision: Decision, looks: Sequence[Look], choices: Sequence[str], decide: Decide
) -> Explained:
    """What looks with the stored choice make of it."""
    wrong = next((look for look in looks if look.ending is not Ending.MEASURED), None)
    if wrong is not None:
        return Explained(decision, wrong=wrong)
    if not looks:
        return Explained(gate.with_reason(decision, gate.not_pinned(NO_TIME)))
    ran = [_ran(look) for look in looks]
    said = [look.final.config.get(PINNED_KEY, "") for look in looks]
    unlike = [text or UNSAID for text in said if text != AS_STORED] or gate.changes(entry, ran)
    if unlike or not gate.same_sources(entry, ran):
        why = unlike[0] if unlike else gate.OTHER_SOURCES
        return Explained(gate.with_reason(decision, gate.not_pinned(why)))
    measured = joined_measurement(list(looks))
    pinned = decide(measured)
    if pinned.verdict is Verdict.SAME:
        drift = gate.as_drift(decision, pinned, median_us_of(measured.processes), choices)
        return Explained(drift, measured.processes)
    if gate.is_moved(entry, ran):
        return Explained(gate.as_moved_and_tuned(decision, pinned, choices), measured.processes)
    return Explained(gate.with_reason(decision, gate.still_slow(pinned)), measured.processes)


def _ran(look: Look) -> Ran:
    final = with_isa(look.final)
    return Ran(final.launches, final.config, final.source_id)
