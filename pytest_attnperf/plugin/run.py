"""One run inside the user's pytest: it starts and ends the workers, collects results, and writes them at the end."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import shlex
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf import __version__
from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.environment.provenance import base_revision, read_provenance, without_credentials
from pytest_attnperf.errors import UsageError, WorkerError
from pytest_attnperf.measure.timers import is_gating, timer_names
from pytest_attnperf.measure.timers.timer_table import LISTED_IN as TIMERS_LISTED_IN
from pytest_attnperf.plugin.config import (
    RunConfig,
    find_sharding,
    is_distributed,
    is_xdist_controller,
    is_xdist_worker,
    parse_number,
    run_config,
)
from pytest_attnperf.plugin.ending import Ended, end_run
from pytest_attnperf.plugin.features.feature import ENDING
from pytest_attnperf.plugin.features.gpus.gpu_choice import GpuChoice, describe_gpus_used, gpus_that_measured
from pytest_attnperf.plugin.features.on import FeatureContext, Features
from pytest_attnperf.plugin.fixtures import SERVER
from pytest_attnperf.plugin.gathered import RESULT, Gathered
from pytest_attnperf.plugin.keys import PLANNED, case_key
from pytest_attnperf.plugin.launching import make_launch_plan, make_sides
from pytest_attnperf.plugin.option_values import read_effort, read_repeats, read_trials
from pytest_attnperf.plugin.session_setup import device_for
from pytest_attnperf.plugin.verdicts import raise_verdict
from pytest_attnperf.records import CaseKey, DeviceInfo, Fingerprint
from pytest_attnperf.results import GATED, RESULTS_SCHEMA, CaseResult, RunResult
from pytest_attnperf.session.case_judge import Session
from pytest_attnperf.session.looking import RECORD_PLACES, RECORDING, UNTIMED, RunBench
from pytest_attnperf.session.plausibility import ANALYSED, remember_under
from pytest_attnperf.session.settings import RunMode, RunSettings
from pytest_attnperf.workers.base_side import BaseSide, resolve_base_side
from pytest_attnperf.workers.base_spec import BaseKind
from pytest_attnperf.workers.launch import LaunchPlan
from pytest_attnperf.workers.pool import Pool
from pytest_attnperf.workers.revisions import Repository
from pytest_attnperf.workers.source_tree import Revisions
from pytest_attnperf.workers.tree_state import read_tree_state

LOCAL_STORE = Path(".attnperf") / "local"


@dataclass(eq=False)  # hashable: pluggy keeps plugins in sets
class Run:
    """Plugin object of a session that has cases.

    gpus         the GPUs that the run uses, with their leases and readings of their state
    in_process   whether cases run in pytest's own process, without workers
    notes        warnings about pytest's own process
    ended        the finished run as it was written; None before that
    """

    config: pytest.Config
    session: Session
    gathered: Gathered
    features: Features
    gpus: GpuChoice
    in_process: bool
    notes: tuple[str, ...] = ()
    ended: Ended | None = field(default=None, init=False)

    @classmethod
    def set_up(cls, config: pytest.Config, cases: Sequence[pytest.Item], builds: Sequence[pytest.Item]) -> Run:
        """Returns the run of these items: resolves its settings, checks out the base side, and starts the first
        workers. Raises UsageError for invalid settings or base side."""
        asked, sharding = run_config(config), find_sharding(config)
        # The false-alarm rate belongs to the run, so that cases of its other parts count, too.
        timed = sharding.timed if sharding is not None else sum(item.stash[PLANNED].timed for item in cases)
        settings = run_settings(asked, timed, distributed=is_distributed(config))
        # An xdist controller has no cases: it only collects results of its workers, and must not hold a GPU.
        sides = None if asked.in_process or not cases else make_sides(config, cases, settings)
        plan = functools.partial(make_launch_plan, config, builds)
        base, against = (_base_of(asked, plan, builds), None) if sides is None else (sides.base, sides.against)
        pool = _local_pool() if sides is None else sides.pool
        store = BaselineStore(*baseline_roots(asked, base))
        remember_under(asked.root / ANALYSED)
        commit = read_tree_state(asked.root, asked.baselines).name
        bench = RunBench(settings, pool, store, asked.root / LOCAL_STORE, commit, against)
        session = Session(replace(bench, revisions=find_known_base(asked.root, base)))
        planned = tuple(key for item in cases if (key := case_key(item)) is not None)
        gathered = Gathered(len(cases) + len(builds), planned=planned)
        features = Features.make_enabled(FeatureContext(config, session, gathered, cases, builds, plan))
        gpus = _gpus_of_xdist(config) if sides is None else sides.gpus
        run = cls(config, session, gathered, features, gpus, in_process=sides is None)
        if sides is not None:
            run._start_workers(pool)
        for feature in features.every:
            feature.before_run()
        return run

    def _start_workers(self, pool: Pool) -> None:
        """Starts the worker processes that every run of this mode needs, without waiting for them.

        In a worker of xdist it waits: cases are distributed when all workers of xdist are ready, so that no process
        starts while another worker times.
        """
        settings = self.session.bench.settings
        if run_config(self.config).sanitize:
            return  # each case gets processes of its own
        places = {
            RunMode.TOGETHER: range(0),  # a case starts a worker on every GPU itself
            **dict.fromkeys(RECORDING, range(RECORD_PLACES, RECORD_PLACES + settings.processes)),
        }.get(settings.mode, range(1))
        pool.start(places)
        if is_xdist_worker(self.config) and settings.mode not in UNTIMED:
            for place in places:
                with contextlib.suppress(WorkerError):  # the case that needs this worker reports it
                    pool.wait_until_ready(place)

    def judge(self, item: pytest.Item, following: CaseKey | None) -> CaseResult:
        """Judges an item, by a feature that knows the result or by measuring; returns the result, also stored with the
        item. `following` is the next case, a hint for the worker."""
        key = case_key(item)
        assert key is not None
        for feature in self.features.every:
            feature.before_case()
        said = (feature.judge_case(item, key) for feature in self.features.every)
        result = next((result for result in said if result is not None), None)
        if result is None:
            result = self.session.judge(replace(item.stash[PLANNED], next_key=following))
        item.stash[RESULT] = result
        return result

    def record_skipped(self, item: pytest.Item, reason: str) -> CaseResult:
        """Returns the result of a case whose test is skipped during set-up, for `reason`; also stores it with the
        item."""
        for feature in self.features.every:
            feature.before_case()
        result = self.session.make_skipped_result(item.stash[PLANNED], reason)
        item.stash[RESULT] = result
        return result

    def serve_in_process(self, item: pytest.Function) -> None:
        """Prepares this process to run the item's body: `attnperf.run()` then judges the case here, without workers."""
        from pytest_attnperf.workers.local import LocalPool, LocalServer

        pool = self.session.bench.pool
        assert isinstance(pool, LocalPool)
        pool.device = pool.device or device_for(self.config)
        self.config.stash[SERVER] = LocalServer(pool, lambda: raise_verdict(self.judge(item, None), self.config))

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Stores the result in a report, from this process or from xdist's workers; passes it to features."""
        result = self.gathered.take_result(report)
        if result is not None:
            for feature in self.features.every:
                feature.after_case(result)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Ends the workers, writes baselines and results, and makes the exit status 1 if the run fails as a whole. In a
        worker of xdist only ends the workers."""
        device, fingerprint = self._find_device()
        every = self.features.every
        findings = tuple(finding for feature in every for finding in feature.collect_findings(self.gathered.cases))
        if self.session.bench.settings.mode is RunMode.GATE and not (session.shouldstop or session.shouldfail):
            findings += tuple(self.gathered.list_unjudged())
        interrupted = int(exitstatus) in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)
        self.features.enter_phase(ENDING)
        with _ignore_interrupts():
            for feature in every:
                feature.before_shutdown(interrupted=interrupted)
            self.session.shutdown()
        if is_xdist_worker(self.config):
            return
        for lease in self.gpus.leases:
            lease.release()
        self.features.enter_phase("writing results")
        record = replace(self._make_result(device, fingerprint, complete=not interrupted), findings=findings)
        store = self.session.bench.store
        self.ended = end_run(self.config, record, store, self.gathered.hidden, interrupted=interrupted)
        for feature in every:
            feature.after_run(self.ended)
        passes = int(exitstatus) in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if passes and self.ended.failed_by:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Prints the tables, findings and closing lines of the run, then what features print; nothing in a worker of
        xdist."""
        if is_xdist_worker(self.config):
            return
        if self.ended is not None:
            from pytest_attnperf.plugin.summary import Summary

            Summary(self.config, terminalreporter, self.ended, self.features.every).show()
        for feature in self.features.every:
            feature.print_at_end(terminalreporter)

    def _make_result(self, device: DeviceInfo | None, fingerprint: Fingerprint | None, *, complete: bool) -> RunResult:
        """Returns the record of the run so far. A warming run is recorded as a run that only checks."""
        gathered, session = self.gathered, self.session
        cases, code = tuple(gathered.cases.values()), tuple(gathered.code.values())
        verdicts = [result.verdict for result in cases] + [result.verdict for result in code]
        selected = max(gathered.selected, len(verdicts)) or gathered.dealt  # workers died before they reported it
        gpus = gpus_that_measured(self.config, cases)
        watch = self.gpus.watch
        return RunResult(
            schema=RESULTS_SCHEMA,
            version=__version__,
            mode=(RunMode.CHECK if session.bench.settings.mode is RunMode.WARM else session.bench.settings.mode).value,
            started=gathered.started_at,
            command=without_credentials(shlex.join(["pytest", *run_config(self.config).words])),
            commit=session.bench.commit,
            device=device,
            fingerprint=fingerprint,
            cases=cases,
            gated=sum(verdict in GATED for verdict in verdicts) + sum(result.unchanged for result in cases),
            selected=selected,
            complete=complete and len(verdicts) >= selected,
            seconds=time.monotonic() - gathered.started,
            against=session.bench.against.label if session.bench.against else "",
            notes=(
                *(session.bench.against.notes if session.bench.against else ()),
                *(note for feature in self.features.every for note in feature.collect_notes(cases)),
                *self.gpus.notes,
                *self.notes,
                *describe_gpus_used(gpus),
            ),
            code=code,
            device_state=watch.end(device.device_id if device else "") if watch else None,
            run_id=uuid.uuid4().hex,
            provenance=read_provenance(self.config.rootpath, os.environ),
            gpus=gpus,
        )

    def _find_device(self) -> tuple[DeviceInfo | None, Fingerprint | None]:
        fingerprints = [result.fingerprint for result in self.gathered.cases.values() if result.fingerprint]
        fingerprint = fingerprints[0] if fingerprints else None
        known = self.session.bench.pool.last_ready()
        if known is not None:
            return known.device, fingerprint
        if fingerprint is None:
            return None, None
        must = fingerprint.must_match
        return DeviceInfo(kind="", arch=must["arch"], product=must["product"]), fingerprint


def _local_pool() -> Pool:
    """Returns a pool without processes: cases run in this process, or there are none."""
    from pytest_attnperf.workers.local import LocalPool

    return LocalPool()


def _gpus_of_xdist(config: pytest.Config) -> GpuChoice:
    """Returns the GPUs of xdist's workers if this is its controller; else no GPUs."""
    if not is_xdist_controller(config):
        return GpuChoice()
    from pytest_attnperf.plugin.features.gpus.several_gpus import read_controller_choice

    gpus = read_controller_choice(config)
    return replace(gpus, watch=None) if run_config(config).in_process else gpus


def _base_of(asked: RunConfig, plan: Callable[[], LaunchPlan], builds: Sequence[pytest.Item]) -> BaseSide | None:
    """Returns the base side of a run that only compiles kernels, for its stored baselines; builds and runs nothing
    there. None without --attnperf-against or `builds`."""
    return resolve_base_side(asked.against, plan(), build="") if asked.against and builds else None


def baseline_roots(asked: RunConfig, side: BaseSide | None) -> tuple[Path, ...]:
    """Returns the folders in which baselines are looked up, in this order: of the base revision, of this tree, and this
    machine's own LOCAL_STORE.

    The base revision comes first because a change under review may have edited the baselines of this tree.
    """
    root, name = asked.root, asked.baselines
    roots = [root / name, root / LOCAL_STORE]
    base = None if side is None else side.root
    if base is not None and not Path(name).is_absolute() and (base / name).is_dir():
        roots.insert(0, base / name)
    return tuple(dict.fromkeys(roots))


def find_known_base(root: Path, side: BaseSide | None) -> Revisions | None:
    """Returns the base revision, whose source ids tell which code has changed: the base side's, or the one that CI
    names. None if it is not known or the base side is no revision. Never HEAD, because the change itself may be
    committed."""
    repository = Repository.find_around(root)
    named = base_revision(os.environ)
    if repository is None or (side is None and not named):
        return None
    try:
        commit = repository.commit_of(named) if side is None else side.commit
    except UsageError:  # not fetched, as in a shallow clone
        return None
    is_revision = side is None or side.kind is BaseKind.REV
    return Revisions(repository, root, commit) if is_revision else None


@contextlib.contextmanager
def _ignore_interrupts() -> Iterator[None]:
    """At a second Ctrl-C ends the block with a line on standard error; the run is still finished."""
    try:
        yield
    except KeyboardInterrupt:
        print("attnperf: still ending the workers", file=sys.stderr)  # noqa: T201


def mode_of(asked: RunConfig) -> RunMode:
    """Returns what kind of run the options ask for: UPDATE, CALIBRATE, GATE, WARM, TOGETHER, else CHECK."""
    if asked.update_baselines:
        return RunMode.UPDATE
    if asked.calibrate:
        return RunMode.CALIBRATE
    if asked.gate:
        return RunMode.GATE
    if asked.warm:
        return RunMode.WARM
    return RunMode.TOGETHER if asked.together else RunMode.CHECK


def run_settings(asked: RunConfig, cases: int, *, distributed: bool) -> RunSettings:
    """Returns the settings of a run with `cases` timed cases. Raises UsageError for a value out of range.

    distributed   whether cases are distributed over workers of xdist
    """
    mode = mode_of(asked)
    if mode is RunMode.WARM:
        from pytest_attnperf.plugin.features.warming import refuse_warm

        refuse_warm(asked, distributed=distributed)
    return RunSettings(
        mode=mode,
        cases=cases,
        processes=_count_processes(asked, mode),
        second_look=asked.count("second-look"),
        plan=replace(read_effort(asked), timer=asked.choice("timer", timer_names(), TIMERS_LISTED_IN)),
        case_limit_seconds=_case_limit_seconds(asked, mode),
        seed=asked.count("seed") if asked.seed else random.SystemRandom().randrange(1 << 31),
        determinism_repeats=read_repeats(asked),
        trials=read_trials(asked),
        record_local=asked.record_local,
        gates=not asked.in_process and is_gating(asked.text("timer")),
        isolate=asked.choice("isolate"),
        given_options=asked.typed_options,
        pin_config=asked.pin_config,
        accepted=asked.accept,
        profile=asked.profile,
        changed_only=asked.changed,
        budget_seconds=_budget_seconds(asked, mode, distributed=distributed),
    )


def _count_processes(asked: RunConfig, mode: RunMode) -> int:
    """Returns the number of fresh processes per baseline entry or calibration. Raises UsageError for too few."""
    if mode is RunMode.CALIBRATE:
        return int(parse_number("--attnperf-calibrate", asked.calibrate, minimum=2, integer=True))
    return asked.count("processes")


def _case_limit_seconds(asked: RunConfig, mode: RunMode) -> float:
    """Returns the seconds after which a case is given up; a warming run has a longer default."""
    if mode is RunMode.WARM and "case-limit" not in asked.typed:
        from pytest_attnperf.plugin.features.warming import CASE_LIMIT_S

        return CASE_LIMIT_S
    return asked.number("case-limit")


def _budget_seconds(asked: RunConfig, mode: RunMode, *, distributed: bool) -> float | None:
    if not asked.budget:
        return None
    from pytest_attnperf.plugin.features.budgeting import budget_seconds

    return budget_seconds(asked, mode, distributed=distributed)
