"""Inputs of a tuning run (what to tune, processes, budget), its search, and its journal records other than trials. A
killed run resumes with them."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import METHOD_VERSION, CaseKey, DeviceInfo
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.tools.tuner import optuna_search, race
from pytest_attnperf.tools.tuner.confirm import WINNER_SIDE, Confirmation, Found
from pytest_attnperf.tools.tuner.pruning import PruneRules
from pytest_attnperf.tools.tuner.slots import Slots
from pytest_attnperf.tools.tuner.trial_bench import TrialBench, is_wrong
from pytest_attnperf.tools.tuner.tuner_decision import DecisionRule
from pytest_attnperf.tools.tuner.tuner_journal import TrialJournal
from pytest_attnperf.tools.tuner.tuner_settings import SearchResult, TuneSearchSettings
from pytest_attnperf.tools.tuner.worker_bench import PLAN
from pytest_attnperf.tuning_records import Candidate, Excluded, Tunable, TuningSpace, Value
from pytest_attnperf.workers.conversation import BlockPlan
from pytest_attnperf.workers.interleave import InterleavePlan
from pytest_attnperf.workers.pool import Pool
from pytest_attnperf.workloads.base import Workload

PAIR, WRONG_RESULT, DEVICE, SELECTION = "pair", "wrong result", "device", "selection"

RACE_TRIALS_MAX = 256
"""Most candidates times workloads for racing every candidate; above, Optuna uses a quarter of the trials."""


@dataclass(frozen=True)
class Served:
    """A workload that the changed rule serves, and the suite's case that runs it."""

    key: CaseKey
    workload: Workload


@dataclass(frozen=True)
class TunePools:
    """The pools of a run's processes: one for each GPU of the search, two on one GPU for pairs, one to warm up."""

    lanes: Sequence[Pool]
    base: Pool
    new: Pool
    warm: Pool | None = None

    def shutdown(self) -> None:
        """Ends every worker process of all these pools."""
        for pool in (*self.lanes, self.base, self.new, *([self.warm] if self.warm is not None else [])):
            pool.shutdown()


@dataclass(frozen=True)
class TuneJob:
    """What to tune, and with which resources.

    backend, name   what is tuned, and its registered name
    tuned           workloads of the search by id, in order
    suite           the suite's other workloads of this backend, by id; measured if the changed rule serves them
    elsewhere       workloads of this backend in other families: not measured, but listed
    root            the project
    cache           folder of compiled objects
    pools           makes the pools; not called in static mode
    journal         file of trials; an existing one is resumed
    source          text in tuned files that names their origin
    kernel, when    arguments of `Tunable.tuning_space`; `default` replaces the space's own
    identity        other facts that must be equal to resume a journal, e.g. the commit
    static          rank by code object only; `static_files` then writes files of the first in rank
    jobs            number of compile processes; `warm_processes` open cases on a GPU before the search, 0 for none
    """

    backend: Tunable
    name: str
    tuned: Mapping[str, Served]
    arch: str
    root: Path
    cache: Path
    journal: Path
    pools: Callable[[], TunePools]
    suite: Mapping[str, Served] = field(default_factory=dict)
    elsewhere: Sequence[Workload] = ()
    source: str = ""
    kernel: str = ""
    when: Mapping[str, Value] | None = None
    default: Candidate | None = None
    identity: Mapping[str, str] = field(default_factory=dict)
    static: bool = False
    static_files: bool = False
    budget_s: float = 600.0
    settings: TuneSearchSettings = field(default_factory=TuneSearchSettings)
    rules: PruneRules = field(default_factory=PruneRules)
    decision: DecisionRule = field(default_factory=DecisionRule)
    pairs: InterleavePlan = field(default_factory=InterleavePlan)
    blocks: BlockPlan = PLAN
    jobs: int = 1
    warm_processes: int = 0
    clock: Callable[[], float] = time.monotonic
    say: Callable[[str], None] = lambda text: None

    @property
    def workloads(self) -> list[Workload]:
        """Workloads that the search measures, in order."""
        return [served.workload for served in self.tuned.values()]


def make_header(job: TuneJob, space: TuningSpace) -> dict[str, str]:
    """Returns the facts (backend, space, workloads, seed, ...) in which a journal must agree with this run to be
    resumed, as name -> text."""
    return {
        "backend": job.name,
        "kernel": space.kernel,
        "arch": job.arch,
        "workloads": " ".join(job.tuned),
        "default": space.default.id,
        "space": _describe_space(space),
        "method": str(METHOD_VERSION),
        "strategy": job.settings.strategy,
        "seed": str(job.settings.seed),
        **job.identity,
    }


def require_same_device(journal: TrialJournal, device: DeviceInfo) -> None:
    """Raises UsageError if the journal's trials come from another kind of device; else records this device in the
    journal."""
    here = f"{device.arch} {device.product}"
    for record in journal.iterate_records(DEVICE):
        if record["device"] != here:
            raise UsageError(
                f"{journal.path}: its trials were timed on {record['device']}, this is {here}; give another --out"
            )
    journal.append(DEVICE, {"device": here})


def record_selection(journal: TrialJournal, kept: Sequence[Candidate], excluded: Sequence[Excluded]) -> None:
    """Writes to the journal the ids of the candidates to time, and of the excluded ones with stage and reason."""
    reasons = {one.candidate.id: [one.stage, one.reason] for one in excluded}
    journal.append(SELECTION, {"kept": [candidate.id for candidate in kept], "excluded": reasons})


def find_selection(
    journal: TrialJournal, listed: Sequence[Candidate], excluded: Sequence[Excluded]
) -> tuple[list[Candidate], list[Excluded]] | None:
    """Returns the candidates that an earlier session of the journal kept, and those that it excluded, with reasons;
    None if no session recorded a selection. Raises UsageError if the journal names a candidate that the space does not
    have."""
    record = next(journal.iterate_records(SELECTION), None)
    if record is None:
        return None
    known = {candidate.id: candidate for candidate in listed} | {one.candidate.id: one.candidate for one in excluded}
    reasons: dict[str, Sequence[str]] = dict(record["excluded"])
    unknown = [name for name in (*record["kept"], *reasons) if name not in known]
    if unknown:
        raise UsageError(f"{journal.path}: has a candidate {unknown[0]} that is not in the space; give another --out")
    return (
        [known[name] for name in record["kept"]],
        [Excluded(known[name], stage, reason) for name, (stage, reason) in reasons.items()],
    )


def restore_pairs(journal: TrialJournal, default: Candidate, winner: Candidate) -> Confirmation:
    """Returns the journal's pairs of `default` and `winner`. Pairs that are added later are written to the journal.
    Also keeps a wrong result of the winner, because it may be intermittent and repeating would hide it. Other failures
    are not kept: a resumed run tries again."""
    between = {"default": default.id, "winner": winner.id}

    def record_pair(workload: str, number: int, found: Found) -> None:
        if isinstance(found, PairSummary):
            journal.append(PAIR, {**between, "workload": workload, "number": number, "pair": asdict(found)})
            return
        side, _, failure = found.partition(": ")
        if side == WINNER_SIDE and is_wrong(failure):
            journal.append(WRONG_RESULT, {**between, "workload": workload, "number": number, "reason": found})

    known = Confirmation(done=record_pair)
    for record in journal.iterate_records(PAIR):
        if {name: record[name] for name in between} == between:
            pair = PairSummary(**{**record["pair"], "quad_ratios": tuple(record["pair"]["quad_ratios"])})
            known.restore(record["workload"], record["number"], pair)
    for record in journal.iterate_records(WRONG_RESULT):
        if {name: record[name] for name in between} == between:
            known.restore(record["workload"], record["number"], str(record["reason"]))
    return known


def _describe_space(space: TuningSpace) -> str:
    """Returns a text: each parameter with its number of values, then a digest of values, constraints and extra
    candidates."""
    whole = {
        "values": {name: list(values) for name, values in space.values.items()},
        "constraints": [constraint.why for constraint in space.constraints],
        "extra": [candidate.id for candidate in space.extra],
    }
    digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:12]
    return f"{', '.join(f'{name} {len(values)}' for name, values in space.values.items())}; {digest}"


def search_candidates(
    space: TuningSpace,
    candidates: Sequence[Candidate],
    workloads: Sequence[str],
    bench: TrialBench,
    settings: TuneSearchSettings,
    journal: TrialJournal,
) -> SearchResult:
    """Searches by the strategy of the settings, and returns the result. Trials that the journal has are not repeated.
    Raises UsageError without a workload, for one named twice, without a candidate besides the default, and for a search
    with Optuna where it is not installed."""
    if not workloads:
        raise UsageError("a search needs at least one workload, got none")
    if len(set(workloads)) < len(workloads):
        raise UsageError(f"a workload is named twice: {', '.join(workloads)}; name each once")
    if all(candidate.id == space.default.id for candidate in candidates):
        raise UsageError(f"no candidate besides the default {space.default.id} is left to search; widen the space")
    chosen = choose_strategy(candidates, workloads, settings)
    if chosen == "optuna":
        optuna_search.require_optuna()
    searches = {
        "race": race.search_by_race,
        "optuna": optuna_search.search_by_optuna,
        "exhaustive": race.search_exhaustively,
    }
    slots = Slots(chosen, space.default, workloads, bench, settings, journal)
    return searches[chosen](space, candidates, slots)


def choose_strategy(candidates: Sequence[Candidate], workloads: Sequence[str], settings: TuneSearchSettings) -> str:
    """Returns 'race', 'optuna' or 'exhaustive' as the settings say; for 'auto', 'race' up to RACE_TRIALS_MAX candidates
    times workloads, else 'optuna'."""
    if settings.strategy != "auto":
        return settings.strategy
    return "race" if len(candidates) * len(workloads) <= RACE_TRIALS_MAX else "optuna"
