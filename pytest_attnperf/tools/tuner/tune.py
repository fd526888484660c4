"""Runs one tuning job: compiles, excludes, searches, confirms in new pairs, decides. Writes nothing but its journal.

The budget is shared. Compiling gets at most COMPILE_SHARE twice: to read code objects, and to warm the compilers'
caches. Confirming keeps a reserve, the search has the rest. What is left out for lack of time is reported, never wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_attnperf.errors import UsageError
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.records import DeviceInfo, Role
from pytest_attnperf.tools.tuner.compiling import CompiledCandidate, compile_all, compile_notes
from pytest_attnperf.tools.tuner.confirm import confirm_winner
from pytest_attnperf.tools.tuner.executed_cycles import order_by_execution
from pytest_attnperf.tools.tuner.job import (
    Served,
    TuneJob,
    TunePools,
    choose_strategy,
    find_selection,
    make_header,
    record_selection,
    require_same_device,
    restore_pairs,
    search_candidates,
)
from pytest_attnperf.tools.tuner.pruning import (
    SAME_CODE,
    describe_criterion,
    find_light_candidates,
    prune_candidates,
    rank,
    split_repeats,
    static_figures,
)
from pytest_attnperf.tools.tuner.trial_bench import Paced, WatchedBench
from pytest_attnperf.tools.tuner.tuner_decision import TuneDecision, judge_winner
from pytest_attnperf.tools.tuner.tuner_journal import TrialJournal
from pytest_attnperf.tools.tuner.tuner_settings import SearchResult, count_allowed_trials, list_candidates
from pytest_attnperf.tools.tuner.worker_bench import WorkerBench, wait_for_process, warm_compilers
from pytest_attnperf.tuning_records import (
    BETTER,
    NO_BETTER,
    STATIC_ONLY,
    Candidate,
    Excluded,
    StaticFigures,
    TunedFile,
    TuneResult,
)
from pytest_attnperf.workers.conversation import OpenRequest
from pytest_attnperf.workloads.base import Workload

COMPILE_SHARE = 0.2
CONFIRM_SHARE = 0.4
"""Largest share of the budget that is kept for confirming."""

PAIR_START_S, PAIR_CASE_S = 12.0, 3.0
"""Estimated time for starting a pair of processes, and for each workload; the reserve is computed from them."""

OVERRUN = 1.5
"""Most times the budget that a run may take to finish a confirmation that has begun."""

COMPILE_LIMIT_S = CASE_LIMIT_S = 120.0
WARM_PLACES = 200_000
CONFIRM_SEED = 500_009
"""Added to the run's seed, so that confirming checks inputs that no trial has used."""

LARGE_BYTES = 2.0**30
"""Size of a workload from which its sides are checked one after the other, for lack of memory."""


def tune(job: TuneJob) -> TuneResult:
    """Searches for a configuration that is faster than the default on the workloads that it serves.

    Raises UsageError for a job that cannot be done (nothing tunable, nothing worth timing, another run's journal, a
    backend that does not run the given configuration), CaseFailedError if the default cannot be timed, WorkerError if
    no process starts. After an interrupt the journal is complete, and the same job resumes it."""
    if not job.tuned:
        raise UsageError(f"{job.name}: no workload to tune for; name at least one")
    return _Run(job).run_steps()


class _Run:
    """One tuning run: its job, candidates, time budget and notes."""

    def __init__(self, job: TuneJob) -> None:
        self.job, self.began = job, job.clock()
        space = job.backend.tuning_space(job.workloads, job.arch, kernel=job.kernel, when=job.when)
        self.space = space if job.default is None else replace(space, default=job.default)
        self.notes: list[str] = []
        if self.space.default.id != space.default.id:
            self.notes.append(
                f"compared with {self.space.default.id}, the given default; the current configuration files have "
                f"{space.default.id}, which may be faster than both"
            )
        self.static: dict[str, StaticFigures] = {}
        self.kept, self.excluded = list_candidates(self.space)
        self.count = len(self.kept)
        self.builds = {candidate.id: self._list_builds(candidate) for candidate in self.kept}
        self.device: DeviceInfo | None = None
        self.selected = False

    @property
    def left_s(self) -> float:
        """Seconds that are left of the budget."""
        return self.began + self.job.budget_s - self.job.clock()

    def say(self, text: str) -> None:
        """Reports `text` as progress, followed by the time that is left of the budget."""
        minutes, seconds = divmod(int(max(0.0, self.left_s)), 60)
        self.job.say(f"{text} ({minutes}:{seconds:02d} left)")

    def run_steps(self) -> TuneResult:
        """Compiles, excludes, searches, confirms; returns the decision. A static job only ranks by code objects."""
        if self.job.static:
            self._prune_candidates(self._compile_candidates())
            return self._rank_statically()
        try:
            with TrialJournal.open(self.job.journal, make_header(self.job, self.space)) as journal:
                self._select_candidates(journal)
                return self._tune_on_device(journal)
        except KeyboardInterrupt:
            self.job.say(f"interrupted; measurements are kept in {self.job.journal}: run the same again to resume")
            raise

    def _select_candidates(self, journal: TrialJournal) -> None:
        """Sets the candidates to time: those that the journal's earlier session selected, or a new selection. A resumed
        search needs the same candidates in the same order."""
        compiled = self._compile_candidates()
        stored = find_selection(journal, self.kept, self.excluded)
        if stored is None:
            self._prune_candidates(compiled)
            return
        self.static = {name: static_figures(found.codes) for name, found in compiled.items() if found.codes}
        self.kept, self.excluded = stored
        self.selected = True
        self.say(f"resuming {self.job.journal}, which has {len(journal.trials)} trials")

    def make_pin(self, candidate: Candidate) -> Mapping[str, str]:
        """Returns the settings, name -> text, that make the backend run a candidate."""
        return self.job.backend.tuning_pin(candidate, self.space)

    def _list_builds(self, candidate: Candidate) -> list[KernelBuild]:
        """Returns the kernels to compile for a candidate on all tuned workloads, each source once."""
        found: list[KernelBuild] = []
        for workload in self.job.workloads:
            for build in self.job.backend.tuning_builds(candidate, self.space, workload, self.job.arch):
                if all(build.source != other.source for other in found):
                    found.append(build)
        return found

    def _compile_candidates(self) -> dict[str, CompiledCandidate]:
        declared = {name: builds for name, builds in self.builds.items() if builds}
        if not declared:
            self.notes.append("nothing was excluded by code object: the backend declares no builds to compile")
            return {}
        until = self.job.clock() + (1.0 if self.job.static else COMPILE_SHARE) * self.job.budget_s
        told = Paced(self.say, self.job.clock, "compiled {} of {} candidates")
        compiled = compile_all(
            declared,
            self.job.root,
            self.job.cache,
            jobs=self.job.jobs,
            limit_s=COMPILE_LIMIT_S,
            stop=lambda: self.job.clock() > until,
            told=told,
        )
        self.notes += compile_notes(compiled, len(declared))
        return compiled

    def _prune_candidates(self, compiled: Mapping[str, CompiledCandidate]) -> None:
        default = self.space.default
        if failure := compiled.get(default.id, CompiledCandidate()).failure:
            self.notes.append(f"the default itself does not compile here, and nothing was compared with it: {failure}")
        self.static = {name: static_figures(found.codes) for name, found in compiled.items() if found.codes}
        self.kept, thrown_out = prune_candidates(self.kept, compiled, default, self.job.rules)
        self.excluded += thrown_out
        self.kept, repeats = split_repeats(self.kept, compiled, self.builds, default)
        self.excluded += repeats
        self.say(f"{len(self.kept)} of {self.count} candidates are worth timing")

    def _rank_statically(self) -> TuneResult:
        """Returns the result of a static job: candidates ranked by code objects, nothing timed. Raises UsageError if no
        candidate can be ranked."""
        known = {candidate: self.static[candidate.id] for candidate in self.kept if candidate.id in self.static}
        if not known:
            raise UsageError(
                f"no candidate of {self.space.kernel} could be ranked for {self.job.arch}: "
                f"{'; '.join(self.notes) or 'none has a code object'}; tune it on a GPU, without --static"
            )
        ranking = order_by_execution(self.job, rank(known, self.job.arch), self.static, self.notes, self.make_pin)
        place = next((n for n, one in enumerate(ranking, 1) if one.id == self.space.default.id), None)
        where = f"the default is number {place}" if place else "the default could not be ranked"
        summary = f"{len(ranking)} candidates ranked by code object for {self.job.arch}; {where}. Nothing was timed"
        self.notes.insert(0, f"nothing was timed: ordered by {describe_criterion(known.values())}")
        files = self._make_files(ranking[0]) if self.job.static_files and ranking[0].id != self.space.default.id else ()
        return self._make_result(
            STATIC_ONLY, summary, "static", ranking[0], ranking=tuple((one, None) for one in ranking), files=files
        )

    def _tune_on_device(self, journal: TrialJournal) -> TuneResult:
        pools = self.job.pools()
        try:
            self.device = wait_for_process(pools.lanes[0], 0).device
            require_same_device(journal, self.device)
            return self._search_and_confirm(pools, journal)
        finally:
            pools.shutdown()

    def _search_and_confirm(self, pools: TunePools, journal: TrialJournal) -> TuneResult:
        served = self._list_served()
        if not self.selected:
            self._warm_compilers(pools)
            record_selection(journal, self.kept, self.excluded)
        found = self._run_search(pools, served, journal)
        self.notes += journal.notes
        self.excluded += found.excluded
        winner = next((one for one, _ in found.ranking if one.id != self.space.default.id), None)
        costs = {one.id: cost for one, cost in found.ranking}
        if winner is None or costs[winner.id] >= costs.get(self.space.default.id, 1.0):
            compared = winner is not None or any(one.stage == "dropped" for one in found.excluded)
            why = "no candidate was faster in the search" if compared else "none was timed on every workload"
            summary = f"no better than default: {why}"
            return self._make_result(NO_BETTER, summary, found.strategy, None, search=found)
        decision = self._confirm_winner(pools, served, winner, journal)
        files = self._make_files(winner) if decision.verdict == BETTER else ()
        return self._make_result(
            decision.verdict, decision.summary, found.strategy, winner, search=found, decision=decision, files=files
        )

    def _list_served(self) -> dict[str, Served]:
        """Returns, by id, the tuned workloads and the suite's other workloads that a changed rule would affect. Adds a
        note on affected workloads of other families, which are not measured."""
        others = {
            name: one
            for name, one in self.job.suite.items()
            if name not in self.job.tuned and self._is_served(one.workload)
        }
        far = [one for one in self.job.elsewhere if self._is_served(one)]
        if far:
            families = ", ".join(sorted({one.family for one in far}))
            self.notes.append(
                f"NOT MEASURED: {self.space.serves or 'the same rule'} also serves {len(far)} workload(s) of "
                f"{families}, e.g. {far[0].id}; tune with --family before the files are used there"
            )
        return {**self.job.tuned, **others}

    def _is_served(self, workload: Workload) -> bool:
        return self.job.backend.tuning_serves(workload, self.space, self.job.arch, self.job.when)

    def _warm_compilers(self, pools: TunePools) -> None:
        """Opens every candidate once in parallel processes on a GPU, which fills the compilers' caches, and excludes
        candidates that cannot be opened. Does nothing without a pool for this. Raises UsageError if only the default is
        left."""
        pool, places = pools.warm, range(WARM_PLACES, WARM_PLACES + self.job.warm_processes)
        if pool is None or not places or pool.wait_until_ready(places[0]).role is not Role.DEVICE:
            return
        until = self.job.clock() + COMPILE_SHARE * self.job.budget_s
        keys = [served.key for served in self._list_distinct()]
        requests = {
            candidate: [OpenRequest(key, None, 1, 2, CASE_LIMIT_S, pin=self.make_pin(candidate)) for key in keys]
            for candidate in self.kept
        }
        told = Paced(self.say, self.job.clock, "opened {} of {} candidates")
        try:
            failures = warm_compilers(pool, places, requests, done=told, expired=lambda: self.job.clock() > until)
        finally:
            pool.shutdown()
        for candidate, why in failures.items():
            if candidate.id != self.space.default.id:
                self.kept.remove(candidate)
                self.excluded.append(Excluded(candidate, "failed", f"failed: {why}", self.static.get(candidate.id)))
        if len(self.kept) < 2:
            raise UsageError(
                f"no candidate besides the default {self.space.default.id} can be opened: "
                f"{next(iter(failures.values()), 'without a reason')}"
            )

    def _list_distinct(self) -> list[Served]:
        """Returns the tuned workloads but those for which the default has the same kernels as for an earlier one."""
        known: list[list[object]] = []
        found = []
        for served in self.job.tuned.values():
            declared = self.job.backend.tuning_builds(self.space.default, self.space, served.workload, self.job.arch)
            sources: list[object] = [build.source for build in declared]
            if not sources or sources not in known:
                known.append(sources)
                found.append(served)
        return found

    def _run_search(self, pools: TunePools, served: Mapping[str, Served], journal: TrialJournal) -> SearchResult:
        keys = {name: one.key for name, one in self.job.tuned.items()}
        seed = self.job.settings.seed
        bench = WorkerBench(pools.lanes, keys, self.make_pin, self.job.blocks, seed=seed, limit_s=CASE_LIMIT_S)
        watched = WatchedBench(bench, Paced(self.say, self.job.clock, "{} trials"), len(journal.trials))
        confirming_s = self.job.pairs.pairs * (PAIR_START_S + PAIR_CASE_S * len(served))
        reserve = min(CONFIRM_SHARE * self.job.budget_s, confirming_s)
        left = max(self.left_s - reserve, 0.1 * self.job.budget_s)
        settings = replace(
            self.job.settings,
            budget_s=min(self.job.settings.budget_s, left),
            clock=self.job.clock,
            probe=self.job.settings.probe or self._choose_probe(),
            preferred=find_light_candidates(self.kept, self.static),
            max_trials=self.job.settings.max_trials or self._max_trials(),
        )
        try:
            found = search_candidates(self.space, self.kept, list(self.job.tuned), watched, settings, journal)
        finally:
            bench.shutdown()
        self.notes += (*found.notes, *bench.list_notes())
        return found

    def _max_trials(self) -> int | None:
        """Returns the trial limit of an Optuna search, a quarter of one pass over all candidates worth timing and those
        with the same code as another one; None for other strategies."""
        if choose_strategy(self.kept, list(self.job.tuned), self.job.settings) != "optuna":
            return None
        repeats = sum(one.stage == SAME_CODE for one in self.excluded)
        return count_allowed_trials(len(self.kept) + repeats, len(self.job.tuned))

    def _choose_probe(self) -> str:
        """Returns the id of the workload with most floating-point operations (bytes if unknown), for exploring a large
        space: overheads hide differences of kernels least there."""
        return max(self.job.tuned, key=lambda name: _estimate_work(self.job.tuned[name].workload))

    def _confirm_winner(
        self, pools: TunePools, served: Mapping[str, Served], winner: Candidate, journal: TrialJournal
    ) -> TuneDecision:
        until = self.began + OVERRUN * self.job.budget_s
        pairs = confirm_winner(
            self.space.default,
            winner,
            {name: one.key for name, one in served.items()},
            pools.base,
            pools.new,
            self.make_pin,
            self.job.pairs,
            seed=self.job.settings.seed + CONFIRM_SEED,
            large={name for name, one in served.items() if (one.workload.bytes_min or 0.0) >= LARGE_BYTES},
            known=restore_pairs(journal, self.space.default, winner),
            stop=lambda: self.job.clock() > until,
            told=lambda number, count: self.say(f"confirming {winner.id}: pair {number} of {count}"),
        )
        most = max((len(found) for found in pairs.values() if not isinstance(found, str)), default=0)
        if most < self.job.pairs.pairs and not all(isinstance(found, str) for found in pairs.values()):
            self.notes.append(
                f"the budget ended the confirmation after {most} of {self.job.pairs.pairs} pairs; run again to resume"
            )
        if self.left_s < 0:
            self.notes.append(f"the run took {-self.left_s:.0f} s longer than its budget, to finish the confirmation")
        return judge_winner(pairs, list(self.job.tuned), self.job.decision)

    def _make_files(self, winner: Candidate) -> tuple[TunedFile, ...]:
        job = self.job
        found = job.backend.tuned_files(winner, self.space, job.workloads, job.arch, source=job.source, when=job.when)
        return tuple(found)

    def _make_result(
        self,
        verdict: str,
        summary: str,
        strategy: str,
        winner: Candidate | None,
        *,
        ranking: tuple[tuple[Candidate, float | None], ...] = (),
        search: SearchResult | None = None,
        decision: TuneDecision | None = None,
        files: tuple[TunedFile, ...] = (),
    ) -> TuneResult:
        return TuneResult(
            backend=self.job.name,
            kernel=self.space.kernel,
            arch=self.job.arch,
            device=self.device,
            workloads=tuple(self.job.tuned),
            strategy=strategy,
            verdict=verdict,
            summary=summary,
            default=self.space.default,
            winner=winner,
            candidates=self.count,
            trials=search.trials if search else (),
            excluded=tuple(self.excluded),
            ranking=tuple(search.ranking) if search else ranking,
            static=self.static,
            overall=decision.overall if decision else None,
            changes=decision.changes if decision else (),
            files=files,
            seconds=self.job.clock() - self.began,
            notes=tuple(dict.fromkeys(self.notes)),
        )


def _estimate_work(workload: Workload) -> float:
    return workload.flops or workload.bytes_min or 0.0
