"""Races candidates in rounds of new processes, and drops clearly slower ones after each round.

A candidate is dropped in three cases only, each with a stated risk:
* It failed or was wrong.
* In the first round, if it could not catch up with the leader even by being CATCH_UP times faster on every remaining
  workload. Chance alone cannot explain its distance: the rule adds NOISE_SIGMAS times the noise. The best candidate
  is lost this way only if it is that much faster than the leader on the rest.
* After a round, if its mean cost over the processes shared with the leader exceeds the leader's by more than
  Student's t times the spread between processes. The tail is RISK, shared among the rounds and the candidates, so that
  one race drops the best candidate with a chance of at most RISK, whichever of the others leads by luck. The spread
  is pooled over candidates and shrunk as in the gate, with the largest known one as its prior. After a single round
  the margin is several percent, because everything that one process measured shares its placement.

A race's winner must still be judged in new pairs. `search_exhaustively` times every candidate on every workload once;
other searches are compared with it.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.stats.noise import PRIOR_DEGREES, CaseSpread, NoiseEstimate, NoiseModel
from pytest_attnperf.stats.quantiles import upper_quantile
from pytest_attnperf.tools.tuner.slots import Costs, Slots
from pytest_attnperf.tools.tuner.tuner_settings import SearchResult, TuneSearchSettings
from pytest_attnperf.tuning_records import Candidate, Excluded, TuningSpace

RISK = 0.01
"""Chance that a race drops the best candidate by noise."""

CATCH_UP = 1.3
"""A candidate is dropped if it would have to be this many times faster than the leader on each remaining workload."""

NOISE_SIGMAS = 6.0

UNIT_US = 100.0
"""A duration for the noise model, equal for all, because differences of costs have none."""

FINALISTS = 4
"""Number of the best that are timed again in new processes, because the best of one pass is partly luck."""


@dataclass(frozen=True)
class Beaten:
    """A candidate that is slower than the leader by more than chance allows. `behind` and `limit` are log ratios."""

    candidate: Candidate
    behind: float
    limit: float
    processes: int


@dataclass
class Race:
    """A running race: the candidates that are left, and its processes.

    field        candidates that did not fail and were not dropped; includes the default
    first_slot   number of its first process
    deal         whether the first round splits the candidates among the lanes: each is timed in one process only
    processes    most processes that the survivors are timed in
    """

    slots: Slots
    field: list[Candidate]
    first_slot: int
    processes: int
    deal: bool = False
    dropping: bool = True
    ended: str = ""

    def __post_init__(self) -> None:
        self.started_with = len(self.field)
        self.dropped: list[Excluded] = []
        self.taken: list[int] = []

    def run(self) -> None:
        """Runs rounds until one candidate is left, the rest are equally fast, or processes or budget are used up. Sets
        `ended` to the reason."""
        lanes = self.slots.lanes
        rounds = math.ceil(self.processes / lanes)
        for number in range(rounds):
            numbers = [self.first_slot + number * lanes + lane for lane in range(lanes)]
            self._run_round(number, numbers)
            if self.slots.stopped:
                self.ended = self.slots.stopped
                return
            self.taken += numbers
            costs = self.slots.collect_costs()
            if self.dropping:
                self._drop_beaten(costs, rounds)
            if self._is_decided(costs, len(self.taken)):
                return
        self.ended = f"all {len(self.taken)} processes were used"

    def _run_round(self, number: int, slots: Sequence[int]) -> None:
        first = number == 0
        lists = self._deal_candidates(slots) if first and self.deal else [self.field] * len(slots)
        order = list(self.slots.workloads)
        if not first:
            random.Random(f"{self.slots.settings.seed}:{slots[0]}").shuffle(order)
        for done, workload in enumerate(order, start=1):
            drawn = [self._shuffle_remaining(todo, slot, workload) for slot, todo in zip(slots, lists, strict=True)]
            self.slots.time_candidates(slots, drawn, workload)
            self._leave_out_failed()
            if self.slots.stopped:
                return
            if first and self.dropping and done < len(order):
                self._drop_far_off(slots, order[:done], len(order) - done)

    def _deal_candidates(self, slots: Sequence[int]) -> list[list[Candidate]]:
        mixed = list(self.field)
        random.Random(f"{self.slots.settings.seed}:deal:{slots[0]}").shuffle(mixed)
        return [mixed[lane :: len(slots)] for lane in range(len(slots))]

    def _shuffle_remaining(self, todo: Sequence[Candidate], slot: int, workload: str) -> list[Candidate]:
        """Returns the candidates of `todo` still in the race, in an order drawn from seed, process and workload."""
        alive = {candidate.id for candidate in self.field}
        mixed = [candidate for candidate in todo if candidate.id in alive]
        random.Random(f"{self.slots.settings.seed}:{slot}:{workload}").shuffle(mixed)
        return mixed

    def _leave_out_failed(self) -> None:
        self.field = [candidate for candidate in self.field if candidate.id not in self.slots.excluded]

    def _drop(self, candidate: Candidate, reason: str) -> None:
        self.field = [other for other in self.field if other.id != candidate.id]
        self.dropped.append(Excluded(candidate, "dropped", reason))
        self.slots.journal.append("dropped", {"candidate": candidate.id, "reason": reason})

    def _drop_far_off(self, slots: Sequence[int], done: Sequence[str], left: int) -> None:
        costs = self.slots.collect_costs()
        behind: dict[str, float] = {}
        for candidate in self.field:
            sums = [costs.sum_log_ratios(candidate, slot, done) for slot in slots]
            known = [value for value in sums if value is not None]
            if known:
                behind[candidate.id] = statistics.fmean(known)
        if not behind:
            return
        leader = min(behind.values())
        noise = NOISE_SIGMAS * difference_sd(self.slots.settings) * math.sqrt(2 * len(done))
        limit = left * math.log(CATCH_UP) + noise
        for candidate in list(self.field):
            excess = behind.get(candidate.id, leader) - leader
            if excess > limit and candidate.id != self.slots.default.id:
                self._drop(
                    candidate,
                    f"far off: {format_log_ratio(excess / len(done))} slower than the leader on "
                    f"{_format_workloads(done)}",
                )

    def _drop_beaten(self, costs: Costs, rounds: int) -> None:
        tail = RISK / (rounds * self.started_with)
        for item in find_beaten(costs, self.field, tail, self.slots.settings):
            if item.candidate.id == self.slots.default.id:
                # It leaves the race, is not reported as dropped, and is still timed: costs are relative to it.
                self.field = [other for other in self.field if other.id != item.candidate.id]
                continue
            behind = f"{format_log_ratio(item.behind)} slower than the leader over {item.processes} process(es)"
            self._drop(
                item.candidate, f"beaten: {behind}, beyond the {format_log_ratio(item.limit)} that chance allows"
            )

    def _is_decided(self, costs: Costs, processes: int) -> bool:
        others = [candidate for candidate in self.field if candidate.id != self.slots.default.id]
        if len(self.field) == 1 or not others:
            self.ended = "one candidate is left" if others else "every candidate except the default was dropped"
            return True
        known = [
            cost for cost in (costs.log_cost(candidate, self.taken) for candidate in self.field) if cost is not None
        ]
        alike = math.log1p(self.slots.settings.indifference)
        if self.dropping and processes > 1 and max(known, default=0.0) - min(known, default=0.0) <= alike:
            self.ended = f"the {len(self.field)} candidates left are within {self.slots.settings.indifference:.1%}"
            return True
        return False


def difference_sd(settings: TuneSearchSettings) -> float:
    """Returns the assumed standard deviation of the difference of two candidates' log costs in one process.

    It is the same for any number of workloads, because errors of workloads in one process may be equal."""
    return math.sqrt(2) * settings.process_sd


def find_beaten(costs: Costs, field: Sequence[Candidate], tail: float, settings: TuneSearchSettings) -> list[Beaten]:
    """Returns the candidates that are slower than the leader, the one of least mean cost, by more than both chance and
    `settings.indifference`. Compares the mean over processes that timed both, or over all if none did. `tail` is the
    one-sided chance of a wrong result per candidate."""
    by_slot = {candidate.id: costs.by_slot(candidate) for candidate in field}
    timed = [candidate for candidate in field if by_slot[candidate.id]]
    if not timed:
        return []
    leader = min(timed, key=lambda candidate: statistics.fmean(by_slot[candidate.id].values()))
    ahead = by_slot[leader.id]
    differences: dict[str, list[float]] = {}
    for candidate in timed:
        own = by_slot[candidate.id]
        differences[candidate.id] = [own[slot] - ahead[slot] for slot in own if slot in ahead]
    prior = NoiseEstimate(difference_sd(settings), PRIOR_DEGREES, "the loudest spread known")
    spreads = {
        name: CaseSpread("cost", UNIT_US, statistics.variance(values), len(values) - 1)
        for name, values in differences.items()
        if len(values) > 1 and name != leader.id
    }
    model = NoiseModel(spreads, "process", prior)
    found = []
    for candidate in timed:
        noise = model.estimate_noise(candidate.id, UNIT_US, "cost")
        assert noise is not None, "a model with a prior knows every case"
        values = differences[candidate.id]
        # Without a shared process, each cost has the noise of its own default.
        apart = math.sqrt(2) if not values else 1.0
        values = values or [statistics.fmean(by_slot[candidate.id].values()) - statistics.fmean(ahead.values())]
        error = apart * noise.relative_sd / math.sqrt(len(values))
        limit = max(upper_quantile(tail, noise.degrees_of_freedom) * error, math.log1p(settings.indifference))
        behind = statistics.fmean(values)
        if behind > limit and candidate.id != leader.id:
            found.append(Beaten(candidate, behind, limit, len(values)))
    return found


def search_by_race(space: TuningSpace, candidates: Sequence[Candidate], slots: Slots) -> SearchResult:
    """Races all candidates and returns ranking, trials and notes. In the first round each candidate is timed on one
    lane (GPU) only; in later rounds every lane times all that are left."""
    race = Race(slots, put_default_first(space, candidates), 0, slots.settings.processes, deal=True)
    race.run()
    finalists = rank_by_cost(race.field, slots.collect_costs(), race.taken)
    notes = [f"the race ended: {race.ended}", *describe_not_compared(slots, candidates)]
    return conclude_search(slots, candidates, finalists, race.dropped, notes)


def conclude_search(
    slots: Slots,
    candidates: Sequence[Candidate],
    finalists: Sequence[tuple[Candidate, float]],
    dropped: Sequence[Excluded],
    notes: Sequence[str],
) -> SearchResult:
    """Returns the result of a search: the finalists (candidate, cost) first, then the other candidates by cost; `notes`
    after those of the journal."""
    return SearchResult(
        slots.strategy,
        whole_ranking(finalists, candidates, slots),
        slots.journal.trials,
        (*slots.excluded.values(), *dropped),
        tuple(candidate for candidate, _ in finalists),
        (*slots.journal.notes, *notes),
    )


def put_default_first(space: TuningSpace, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns the space's default, followed by the other candidates in their order."""
    return [space.default, *(candidate for candidate in candidates if candidate.id != space.default.id)]


def rank_by_cost(
    field: Sequence[Candidate], costs: Costs, slots: Sequence[int] | None = None
) -> list[tuple[Candidate, float]]:
    """Returns (candidate, cost) pairs, least cost first; cost is the time over the default's in `slots` (None: in all).
    For a candidate without a cost there, all slots count. One without any cost is left out."""
    found = []
    for candidate in field:
        log_cost = costs.log_cost(candidate, slots)
        log_cost = costs.log_cost(candidate) if log_cost is None else log_cost
        if log_cost is not None:
            found.append((candidate, math.exp(log_cost)))
    return sorted(found, key=lambda item: (item[1], item[0].id))


def whole_ranking(
    finalists: Sequence[tuple[Candidate, float]], candidates: Sequence[Candidate], slots: Slots
) -> tuple[tuple[Candidate, float], ...]:
    """Returns (candidate, cost) of the finalists, then of all others timed on every workload and not excluded, by
    cost."""
    placed = {candidate.id for candidate, _ in finalists} | set(slots.excluded)
    others = [candidate for candidate in (slots.default, *candidates) if candidate.id not in placed]
    return (*finalists, *rank_by_cost(list({c.id: c for c in others}.values()), slots.collect_costs()))


def describe_not_compared(slots: Slots, candidates: Sequence[Candidate]) -> list[str]:
    """Returns one note that counts candidates neither timed on all workloads nor excluded nor dropped; empty if there
    are none."""
    costs = slots.collect_costs()
    dropped = {str(record["candidate"]) for record in slots.journal.iterate_records("dropped")}
    left = [
        candidate
        for candidate in candidates
        if candidate.id not in slots.excluded | dict.fromkeys(dropped) and not costs.by_slot(candidate)
    ]
    return [f"{len(left)} of {len(candidates)} candidates were not timed on every workload"] if left else []


def format_log_ratio(log_ratio: float) -> str:
    """Returns the change that a log ratio means, in percent: log(1.042) gives '4.2 %'."""
    return f"{100 * math.expm1(log_ratio):.1f} %"


def _format_workloads(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} workloads"


def search_exhaustively(space: TuningSpace, candidates: Sequence[Candidate], slots: Slots) -> SearchResult:
    """Times every candidate once, split among the lanes (GPUs), then races the best FINALISTS; returns ranking, trials
    and notes. With 1 process (`slots.settings`) there is no race, and the ranking is that of the single pass."""
    whole = Race(slots, put_default_first(space, candidates), 0, slots.lanes, deal=True, dropping=False)
    whole.run()
    notes, processes = list[str](), slots.settings.processes
    if slots.stopped:
        notes.append(f"the pass over all candidates ended early: {slots.stopped}")
    finalists = rank_by_cost(whole.field, slots.collect_costs())[:FINALISTS]
    dropped: list[Excluded] = []
    if processes > 1 and not slots.stopped:
        finalists, dropped, ended = race_finalists(slots, finalists, slots.lanes, processes)
        notes.append(f"the race of the best {FINALISTS} ended: {ended}")
    notes += describe_not_compared(slots, candidates)
    return conclude_search(slots, candidates, finalists, dropped, notes)


def race_finalists(
    slots: Slots, finalists: Sequence[tuple[Candidate, float]], first_slot: int, processes: int
) -> tuple[list[tuple[Candidate, float]], list[Excluded], str]:
    """Races the finalists and the default in new processes. Returns the survivors with their costs there, the dropped
    candidates, and why the race ended. Costs of the earlier search do not count again, because finalists were selected
    for small ones. If no round is completed, the finalists are returned as given."""
    field = [slots.default, *(candidate for candidate, _ in finalists if candidate.id != slots.default.id)]
    race = Race(slots, field, first_slot, processes)
    race.run()
    if not race.taken:
        return list(finalists), race.dropped, race.ended
    return rank_by_cost(race.field, slots.collect_costs(), race.taken), race.dropped, race.ended
