"""Searches large spaces with Optuna's TPE, then races the best candidates over new processes.

Candidates are explored on one workload, the probe. A candidate that is slow there is not the best anywhere, and four
times as many can be tried as on four workloads. The best ones are then raced on all workloads, in processes of their
own.

Optuna proposes, by its ask and tell. Only valid candidates that were not timed yet are timed. Other proposals are
reported as failed and do not count. So are candidates that are not preferred, as long as a preferred one is untried.
After the first STARTUP candidates, every second proposal is an untried neighbour of the best so far instead: TPE treats
the values of a parameter as unordered, but tile sizes have an order.

The study lies in Optuna's own journal beside the tuner's. A killed tuner resumes with both. The sampler is made again
for every question, from the seed and the number of trials so far, so that a killed search asks the same questions as an
uninterrupted one.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.tuner.race import conclude_search, race_finalists, rank_by_cost
from pytest_attnperf.tools.tuner.slots import DEFAULT_EVERY, Costs, Slots
from pytest_attnperf.tools.tuner.tuner_journal import TrialJournal, drop_torn_line
from pytest_attnperf.tools.tuner.tuner_settings import SearchResult, count_allowed_trials
from pytest_attnperf.tuning_records import Candidate, TuningSpace, Value

if TYPE_CHECKING:
    import optuna

FINAL_SHARE = 0.35
"""Share of time and trials that is kept for the race of the finalists."""

PROMOTED = 6
"""Number of the best on the probe that are raced on all workloads."""

STARTUP = 10
"""Random proposals before TPE has enough results to use."""

TRIES = 12
"""Most rejected proposals in a row; then an untried candidate is drawn at random."""

STUDY = "attnperf"


def search_by_optuna(space: TuningSpace, candidates: Sequence[Candidate], slots: Slots) -> SearchResult:
    """Searches with Optuna's TPE on one workload (the probe), then races the best PROMOTED candidates, fewer if the
    trial limit is small, on all workloads in new processes. Returns ranking, trials and notes. Raises UsageError if
    Optuna's file cannot be read."""
    settings, workloads = slots.settings, len(slots.workloads)
    trials = settings.max_trials or count_allowed_trials(len(candidates), workloads)
    kept = max(math.floor(trials * FINAL_SHARE), min((PROMOTED + 1) * workloads, trials // 2))
    promoted = max(1, min(PROMOTED, kept // workloads - 1))  # the default is timed, too
    slots.set_limits(settings.budget_s * (1 - FINAL_SHARE), trials - kept)
    with _silence_optuna():
        explored = Exploration(space, candidates, slots)
        explored.run()
    notes = [f"{len(explored.tried)} of {len(candidates)} candidates were tried on {explored.probe}"]
    slots.set_limits(settings.budget_s, trials)
    finalists, dropped, ended = race_finalists(
        slots, explored.list_best(promoted), explored.next_slot, settings.processes
    )
    notes.append(f"the race of the best {promoted} on all workloads ended: {ended}")
    return conclude_search(slots, list(explored.tried.values()), finalists, dropped, notes)


@dataclass(frozen=True)
class Proposal:
    """A candidate whose cost Optuna waits for: its trial number there, and its place among all evaluated ones."""

    number: int
    place: int
    candidate: Candidate


class Exploration:
    """Asks Optuna for candidates and reports their costs, until its share of the budget is used.

    probe       the workload that candidates are timed on
    tried       evaluated candidates, by id
    next_slot   the first unused slot
    """

    def __init__(self, space: TuningSpace, candidates: Sequence[Candidate], slots: Slots) -> None:
        self._space, self._slots = space, slots
        grid = [candidate for candidate in (space.default, *candidates) if _is_in_grid(space, candidate)]
        self._valid = {candidate.id: candidate for candidate in grid}
        self._outside = [candidate for candidate in candidates if candidate.id not in self._valid]
        self._order = {name: {str(value): at for at, value in enumerate(space.values[name])} for name in space.values}
        self._study = _open_study(slots.journal)
        self.probe = slots.settings.probe or slots.workloads[-1]
        if self.probe not in slots.workloads:
            raise UsageError(f"the probe {self.probe!r} is none of the workloads: {', '.join(slots.workloads)}")
        self.tried: dict[str, Candidate] = {}
        self._best: tuple[float, Candidate] = (0.0, space.default)
        self._places = 0
        self.next_slot = slots.lanes

    def run(self) -> None:
        """Times candidates outside the grid, evaluates an earlier session's proposals again, then asks Optuna for more
        until the limits are reached or every candidate was tried."""
        self._slots.time_candidates([0], [self._outside], self.probe)
        self.tried |= {
            candidate.id: candidate for candidate in self._outside if candidate.id not in self._slots.excluded
        }
        self._resume()
        if not self._study.get_trials(deepcopy=False) and self._space.default.id in self._valid:
            self._enqueue(self._space.default)
        while not self._slots.stopped:
            asked = self._ask_batch()
            if not asked:
                return
            self._evaluate(asked)

    def list_best(self, count: int) -> list[tuple[Candidate, float]]:
        """Returns the `count` fastest candidates on the probe workload, with their time there over the default's."""
        return rank_by_cost(list(self.tried.values()), self._costs_on_probe())[:count]

    def _costs_on_probe(self) -> Costs:
        return self._slots.collect_costs(self.probe)

    def _resume(self) -> None:
        """Evaluates the stored study's trials again: times come from the journal, and only unfinished ones are
        measured. A running trial whose candidate is not valid any more is reported as failed."""
        from optuna.trial import TrialState

        batch: list[Proposal] = []
        for trial in self._study.get_trials(deepcopy=True):
            if trial.state in (TrialState.FAIL, TrialState.WAITING):
                continue
            candidate = self._valid.get(Candidate(cast("dict[str, Value]", trial.params)).id)
            if candidate is None:
                if trial.state == TrialState.RUNNING:
                    self._study.tell(trial.number, state=TrialState.FAIL)
                continue
            batch.append(self._register_proposal(trial.number, candidate))
            if len(batch) == self._slots.lanes:
                self._evaluate(batch)
                batch = []
        if batch:
            self._evaluate(batch)

    def _register_proposal(self, number: int, candidate: Candidate) -> Proposal:
        asked = Proposal(number, self._places, candidate)
        self.tried[candidate.id] = candidate
        self._places += 1
        self.next_slot = max(
            self.next_slot, self._choose_slot(asked) // self._slots.lanes * self._slots.lanes + self._slots.lanes
        )
        return asked

    def _choose_slot(self, asked: Proposal) -> int:
        """Returns the slot (process number) of a proposal: lanes take turns, and each starts a new process after
        DEFAULT_EVERY candidates."""
        lanes = self._slots.lanes
        return asked.place % lanes + lanes * (asked.place // lanes // DEFAULT_EVERY)

    def _ask_batch(self) -> list[Proposal]:
        batch = []
        for _ in range(self._slots.lanes - self._places % self._slots.lanes):
            asked = self._ask()
            if asked is None:
                break
            batch.append(asked)
        return batch

    def _ask(self) -> Proposal | None:
        """Returns a proposal of a valid untried candidate, and counts it as tried; None if every candidate was
        tried."""
        from optuna.trial import TrialState

        untried = [candidate for name, candidate in self._valid.items() if name not in self.tried]
        if not untried:
            return None
        preferred = [one for one in untried if one.id in self._slots.settings.preferred] or untried
        wanted = {one.id for one in preferred}
        if 0 < self._places < STARTUP:
            self._enqueue(self._make_random().choice(preferred))
        elif self._places >= STARTUP and self._places % 2:
            wanted = {one.id for one in untried}
            self._enqueue(self._choose_nearest(untried))
        for attempt in range(TRIES + 1):
            if attempt == TRIES:
                self._enqueue(self._make_random().choice(preferred))
            self._study.sampler = _make_sampler(self._compute_seed())
            trial = self._study.ask()
            told = {name: trial.suggest_categorical(name, choices) for name, choices in self._space.values.items()}
            candidate = self._valid.get(Candidate(cast("dict[str, Value]", told)).id)
            if candidate is not None and (candidate.id in wanted or not self._places):
                return self._register_proposal(trial.number, candidate)
            self._study.tell(trial, state=TrialState.FAIL)
        raise AssertionError("Optuna did not propose the valid, untried candidate that was enqueued")

    def _make_random(self) -> random.Random:
        return random.Random(f"{self._slots.settings.seed}:{self._places}")

    def _enqueue(self, candidate: Candidate) -> None:
        self._study.enqueue_trial(dict(candidate.values))

    def _compute_seed(self) -> int:
        return (self._slots.settings.seed * 1_000_003 + len(self._study.get_trials(deepcopy=False))) % 2**32

    def _choose_nearest(self, untried: Sequence[Candidate]) -> Candidate:
        """Returns the untried candidate closest to the fastest so far: fewest parameters changed, fewest steps in their
        lists of values, then at random."""
        best = self._best[1]
        drawn = self._make_random()

        def compute_distance(candidate: Candidate) -> tuple[int, int, float]:
            steps = [
                abs(order.get(str(candidate.values[name]), 0) - order.get(str(best.values.get(name)), 0))
                for name, order in self._order.items()
            ]
            return sum(step > 0 for step in steps), sum(steps), drawn.random()

        return min(untried, key=compute_distance)

    def _evaluate(self, batch: Sequence[Proposal]) -> None:
        """Times proposals on the probe workload, each on its own lane, and reports costs and failures to Optuna. A
        proposal that the limits left untimed stays open."""
        self._slots.time_candidates(
            [self._choose_slot(asked) for asked in batch], [[asked.candidate] for asked in batch], self.probe
        )
        for asked in batch:
            cost = self._find_cost(asked)
            if cost is not None or asked.candidate.id in self._slots.excluded:
                self._tell(asked, cost)

    def _find_cost(self, asked: Proposal) -> float | None:
        """Returns the log of a proposal's time over the default's on the probe workload; None if it was not timed."""
        if asked.candidate.id == self._space.default.id:
            return 0.0
        return self._costs_on_probe().by_slot(asked.candidate).get(self._choose_slot(asked))

    def _tell(self, asked: Proposal, cost: float | None) -> None:
        """Reports a proposal's log cost to Optuna and updates the best one. With `cost` None it failed: it is reported
        as pruned, removed from the tried ones, and not proposed again."""
        from optuna.trial import TrialState

        if cost is None:
            self.tried.pop(asked.candidate.id, None)
            self._valid.pop(asked.candidate.id, None)
        elif cost < self._best[0]:
            self._best = (cost, asked.candidate)
        if self._study.get_trials(deepcopy=False)[asked.number].state.is_finished():
            return
        if cost is None:
            self._study.tell(asked.number, state=TrialState.PRUNED)
        else:
            self._study.tell(asked.number, cost)


def _is_in_grid(space: TuningSpace, candidate: Candidate) -> bool:
    if candidate.label and candidate.id != space.default.id:
        return False
    return candidate.values.keys() == space.values.keys() and all(
        any(type(value) is type(choice) and value == choice for choice in space.values[name])
        for name, value in candidate.values.items()
    )


def require_optuna() -> None:
    """Raises UsageError, which says how to install it, if Optuna cannot be imported."""
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"this search needs Optuna, which cannot be imported ({error}): pip install 'pytest-attnperf[tune]', "
            "or race with --strategy race"
        ) from error


def _open_study(journal: TrialJournal) -> optuna.Study:
    """Opens or creates Optuna's study in a file beside the journal; in memory if the journal has no file. The journal's
    lock also protects the study's file. If the journal has no trials, the file belongs to a deleted journal, perhaps of
    another space, so it is deleted. Raises UsageError if Optuna cannot read the file."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    if journal.path is None:
        return optuna.create_study(study_name=STUDY, direction="minimize")
    path = journal.path.with_name(f"{journal.path.stem}.optuna.jsonl")
    try:
        if not journal.trials:
            path.unlink(missing_ok=True)
        _, torn = drop_torn_line(path)
        if torn:
            journal.notes.append(f"{path.name}: dropped a last line of {torn} bytes that was half written")
        held: Any = _AlreadyHeld()
        storage = JournalStorage(JournalFileBackend(str(path), lock_obj=held))
        return optuna.create_study(storage=storage, study_name=STUDY, direction="minimize", load_if_exists=True)
    except Exception as error:
        raise UsageError(
            f"{path}: Optuna cannot read its study ({type(error).__name__}: {error}); delete this file: the times are "
            f"in {journal.path.name}, and none is measured again"
        ) from error


class _AlreadyHeld:
    """A lock that does nothing. Optuna's own lock file would survive a kill for half a minute."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        return


def _make_sampler(seed: int) -> optuna.samplers.BaseSampler:
    from optuna.samplers import TPESampler

    return TPESampler(seed=seed, multivariate=True, constant_liar=True, n_startup_trials=STARTUP)


@contextmanager
def _silence_optuna() -> Iterator[None]:
    """Silences Optuna's line per trial and its warnings on experimental arguments; restores both afterwards."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)
