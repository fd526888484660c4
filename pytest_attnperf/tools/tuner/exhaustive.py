"""Times every candidate on every workload once: what the other searches are measured against, and small spaces."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_attnperf.tools.tuner.bench import Bench
from pytest_attnperf.tools.tuner.journal import Journal
from pytest_attnperf.tools.tuner.race import Race, not_compared, ranked, whole_ranking, with_default
from pytest_attnperf.tools.tuner.settings import SearchResult, SearchSettings
from pytest_attnperf.tools.tuner.slots import Slots
from pytest_attnperf.tuning_records import Candidate, Excluded, TuningSpace

FINALISTS = 4
"""How many of the best are timed again in fresh processes: the best of one pass is partly the luckiest."""


def search(
    space: TuningSpace,
    candidates: Sequence[Candidate],
    workloads: Sequence[str],
    bench: Bench,
    settings: SearchSettings,
    journal: Journal,
) -> SearchResult:
    """One pass over everything, dealt out to the lanes, nothing dropped; then a race of the best FINALISTS.

    With `settings.processes` 1 there is no race, and the ranking is that of the pass.
    """
    slots = Slots("exhaustive", space.default, workloads, bench, settings, journal)
    whole = Race(slots, with_default(space, candidates), 0, slots.lanes, deal=True, dropping=False)
    whole.run()
    notes = [*journal.notes]
    if slots.stopped:
        notes.append(f"the pass over all candidates ended early: {slots.stopped}")
    finalists = ranked(whole.field, slots.costs())[:FINALISTS]
    dropped: list[Excluded] = []
    if settings.processes > 1 and not slots.stopped:
        finalists, dropped, ended = race_finalists(slots, finalists, slots.lanes, settings.processes)
        notes.append(f"the race of the best {FINALISTS} ended: {ended}")
    return SearchResult(
        "exhaustive",
        whole_ranking(finalists, candidates, slots),
        journal.trials,
        (*slots.excluded.values(), *dropped),
        tuple(candidate for candidate, _ in finalists),
        (*notes, *not_compared(slots, candidates)),
    )


def race_finalists(
    slots: Slots, finalists: Sequence[tuple[Candidate, float]], first_slot: int, processes: int
) -> tuple[list[tuple[Candidate, float]], list[Excluded], str]:
    """The survivors of a race in fresh processes with their costs there, what it dropped, and why it ended.

    The costs that they were chosen by take no part: those were chosen for being small. The default is among them.
    """
    field = [slots.default, *(candidate for candidate, _ in finalists if candidate.id != slots.default.id)]
    race = Race(slots, field, first_slot, processes)
    race.run()
    if not race.taken:
        return list(finalists), race.dropped, race.ended
    return ranked(race.field, slots.costs(), race.taken), race.dropped, race.ended
