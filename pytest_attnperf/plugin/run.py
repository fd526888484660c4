"""One run inside the user's pytest: owns the session and its workers, gathers results, writes, prints."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import shlex
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf import __version__
from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.environment.provenance import provenance, without_credentials
from pytest_attnperf.errors import UsageError, WorkerError
from pytest_attnperf.plugin import options, several_gpus
from pytest_attnperf.plugin.base_findings import only_on_base, renamed_unseen
from pytest_attnperf.plugin.budgeting import Budgeting, budget_seconds
from pytest_attnperf.plugin.card_watch import CardWatch
from pytest_attnperf.plugin.cases import switches
from pytest_attnperf.plugin.closing import Closing
from pytest_attnperf.plugin.code_run import CodeRun
from pytest_attnperf.plugin.fixtures import SERVER
from pytest_attnperf.plugin.gpu_choice import Chosen, gpus_that_measured, measured_on
from pytest_attnperf.plugin.interrupts import watch
from pytest_attnperf.plugin.journaling import Journal
from pytest_attnperf.plugin.launching import TIMER_CHOICES, commit_of, launch_plan, make_sides
from pytest_attnperf.plugin.policy_settings import policy_for
from pytest_attnperf.plugin.progress import ENDING, Progress
from pytest_attnperf.plugin.publishing import Publishing
from pytest_attnperf.plugin.warming import Warming, case_limit_seconds, refuse_warm
from pytest_attnperf.records import CaseKey, DeviceInfo, Fingerprint, Verdict
from pytest_attnperf.reports.files.junit import properties
from pytest_attnperf.reports.files.noted import from_values, to_values
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult
from pytest_attnperf.session.judge import Session
from pytest_attnperf.session.looking import RECORD_PLACES, RECORDING, UNTIMED
from pytest_attnperf.session.settings import Case, Mode, RunSettings
from pytest_attnperf.workers.base_side import BaseSide, resolve_base_side
from pytest_attnperf.workers.conversation import BlockPlan
from pytest_attnperf.workers.local import LocalPool, LocalServer
from pytest_attnperf.workers.pool import Pool

GATED = frozenset({Verdict.SAME, Verdict.FASTER, Verdict.SLOWER, Verdict.WORSE})
"""Verdicts that come of a comparison with something stored."""

LOCAL_STORE = Path(".attnperf") / "local"
_RESULT = pytest.StashKey[CaseResult]()


@dataclass(eq=False)  # hashable: pluggy keeps plugins in sets
class Run:
    """Plugin object of a session that has cases."""

    config: pytest.Config
    session: Session
    settings: RunSettings
    selected: int
    progress: Progress
    closing: Closing
    code: CodeRun
    publishing: Publishing
    journal: Journal
    started: float = field(default_factory=time.monotonic)
    started_at: str = field(default_factory=lambda: datetime.now(timezone.utc).isoformat(timespec="seconds"))
    results: dict[CaseKey, CaseResult] = field(default_factory=dict)
    dealt: set[str] = field(default_factory=set)
    """Under xdist the tests that its workers have not ended yet."""
    ended: set[str] = field(default_factory=set)
    watch: CardWatch | None = None
    gpus: Chosen = field(default_factory=Chosen)
    budgeting: Budgeting | None = None
    warming: Warming | None = None
    notes: tuple[str, ...] = ()
    """What a reader must know of the process of pytest."""

    @classmethod
    def of(cls, config: pytest.Config, cases: Sequence[pytest.Item], builds: Sequence[pytest.Item]) -> Run:
        """Resolve the run settings and start the workers that are sure to be needed. Raises UsageError."""
        settings = run_settings(config, sum(switches(item)["timed"] for item in cases))
        in_process = settings.isolate == "none"
        # An xdist controller has no cases: it gathers what its workers report, and must not hold a GPU.
        sides = None if in_process or not cases else make_sides(config, cases, settings)
        pool: Pool = LocalPool() if sides is None else sides.pool
        store = BaselineStore(*baseline_roots(config, _base_of(config, builds) if sides is None else sides.base))
        local = config.rootpath / LOCAL_STORE
        against = None if sides is None else sides.against
        commit = commit_of(config.rootpath)
        session = Session(settings, pool, store, local, commit, against)
        code = CodeRun(config, builds, settings, store.roots, functools.partial(launch_plan, config, builds))
        selected = len(cases) + len(builds)
        closing, publishing = Closing(config), Publishing(config)
        journal = Journal.of(config, settings, commit)
        progress = Progress(config, selected, lambda: code.compiling)
        run = cls(config, session, settings, selected, progress, closing, code, publishing, journal)
        if not hasattr(config, "workerinput"):
            progress.show()
            watch(config, journal.resume_command, closing.if_interrupted(settings.mode), progress)
        run.gpus = Chosen(notes=several_gpus.notes(config)) if sides is None else sides.gpus
        if settings.mode not in UNTIMED and not in_process and (cases or several_gpus.is_xdist_controller(config)):
            run.watch = several_gpus.watch(config, run.gpus.tokens)
        if sides is not None:
            run._start(pool)
        if cases and settings.budget_seconds is not None:
            run.budgeting = Budgeting(config, session, cases, run.progress.say)
        if cases and settings.mode is Mode.WARM:
            run.warming = Warming.of(config, session, len(cases))
        return run

    def _start(self, pool: Pool) -> None:
        """Begin starting the workers that are sure to be needed.

        Under xdist wait for them: cases are dealt out when every one of its workers is ready, so that no process of one
        starts while another one times.
        """
        places = {
            Mode.TOGETHER: range(0),  # each case has one on every GPU
            **dict.fromkeys(RECORDING, range(RECORD_PLACES, RECORD_PLACES + self.settings.processes)),
        }.get(self.settings.mode, range(1))
        pool.start(places)
        if hasattr(self.config, "workerinput") and self.settings.mode not in UNTIMED:
            for place in places:
                with contextlib.suppress(WorkerError):  # a case that asks for it says so
                    pool.ready(place)

    @property
    def in_process(self) -> bool:
        """Whether cases run in this process (`--attnperf-isolate=none`)."""
        return isinstance(self.session.pool, LocalPool)

    def judge(self, item: pytest.Item, key: CaseKey, following: CaseKey | None) -> CaseResult:
        """The verdict of one item."""
        self.progress.before(key)
        before = self.journal.taken_over(key)
        if before is not None:
            return before
        planned = None if self.budgeting is None else self.budgeting.verdict(key)
        if planned is not None:
            return planned
        case = Case(key, item.nodeid, policy_for(self.config, item), following, **switches(item))
        return self.session.judge(case) if self.warming is None else self.warming.judge(case)

    def skipped(self, item: pytest.Item, key: CaseKey, reason: str) -> CaseResult:
        """The result of an item that is skipped before it comes to its case."""
        self.progress.before(key)
        return self.session.skipped(
            Case(key, item.nodeid, policy_for(self.config, item), None, **switches(item)), reason
        )

    def serve_in_process(self, item: pytest.Function, key: CaseKey) -> None:
        """Let the body run here; its `attnperf.run()` is judged where it stands."""
        from pytest_attnperf.plugin.controller_session import raise_verdict
        from pytest_attnperf.plugin.worker_session import device_for

        pool = self.session.pool
        assert isinstance(pool, LocalPool)
        pool.device = pool.device or device_for(self.config)

        def judged() -> None:
            result = self.judge(item, key, None)
            self.attach(item, result)
            raise_verdict(result)

        item.config.stash[SERVER] = LocalServer(pool, judged)

    def attach(self, item: pytest.Item, result: CaseResult) -> None:
        """Keep the result with its item, and give JUnit its properties."""
        item.stash[_RESULT] = result
        item.user_properties.extend(properties(result))

    def encoded(self, item: pytest.Item) -> dict[str, Any] | None:
        """The item's result as builtins, or None."""
        result = item.stash.get(_RESULT, None)
        encoded: dict[str, Any] | None = None if result is None else to_values(result)
        return encoded

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Gather results, from this process and from xdist's workers alike."""
        self.selected = max(self.selected, getattr(report, "attnperf_selected", 0))
        encoded = getattr(report, "attnperf_result", None)
        if encoded is not None and report.when == "call":
            result = from_values(encoded, CaseResult)
            self.results[result.key] = result
            self.closing.hear(result, report)
            self.journal.add(result)
            self.progress.after(result)
        compiled = getattr(report, "attnperf_code_result", None)
        if compiled is not None and report.when == "call":
            code = self.code.gather(compiled)
            self.closing.hear(code, report)
            self.journal.add(code)
            self.progress.after(code)
        if report.nodeid in self.dealt and (encoded or compiled or report.when == "teardown"):
            self.dealt.discard(report.nodeid)
            self.ended.add(report.nodeid)
            if not encoded and not compiled:
                self.progress.passed_by()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: Sequence[str]) -> None:
        """Every worker of xdist has collected all there is: that much is to be done. One that replaces a dead worker
        finds what has ended, too.
        """
        self.dealt = set(ids) - self.ended
        if not self.ended:
            self.progress.expect(len(ids))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """End the workers, write what there is, and set the run's exit status."""
        device, fingerprint = self._where()
        missing = only_on_base(self.config, self.session.against, self.results)
        interrupted = int(exitstatus) in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)
        self.progress.enter(ENDING)
        with _uninterrupted():
            if self.warming is not None:
                self.warming.finish(interrupted=interrupted)
            self.code.shutdown()
            self.session.shutdown()
        if hasattr(self.config, "workerinput"):
            return
        for lease in self.gpus.leases:
            lease.release()
        self.progress.enter("writing results")
        if self.budgeting is not None and (session.shouldfail or session.shouldstop or interrupted):
            self.results.update({**self.budgeting.results, **self.results})
        record = self.record(device, fingerprint, complete=not interrupted)
        record = replace(
            record,
            device_state=self.watch.end(device.device_id if device else "") if self.watch else None,
            findings=missing,
        )
        status = self.closing.finish(record, self.session.store, interrupted=interrupted)
        self.journal.end(complete=record.complete)
        if self.closing.final is not None and self.settings.mode not in UNTIMED:
            self.publishing.publish(self.closing.final, self.session.store.roots, self.closing.failed_by)
        self.progress.over()
        if int(exitstatus) in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) and status:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Tables, findings and the closing line."""
        if not hasattr(self.config, "workerinput"):
            self.closing.show(terminalreporter)
            if self.warming is not None:
                self.warming.show(terminalreporter, self.config.get_verbosity())
            self.publishing.show(terminalreporter)

    def record(self, device: DeviceInfo | None, fingerprint: Fingerprint | None, *, complete: bool) -> RunResult:
        """The run so far. One that warms leaves behind what one that only checks does."""
        judged = len(self.results) + len(self.code.results)
        verdicts = [result.verdict for result in self.results.values()]
        verdicts += [result.verdict for result in self.code.results.values()]
        selected = max(self.selected, judged) or len(self.dealt)  # of workers that died before they said how many
        gpus = gpus_that_measured(self.config, self.results.values())
        return RunResult(
            schema=RESULTS_SCHEMA,
            version=__version__,
            mode=(Mode.CHECK if self.settings.mode is Mode.WARM else self.settings.mode).value,
            started=self.started_at,
            command=without_credentials(shlex.join(["pytest", *map(str, self.config.invocation_params.args)])),
            commit=self.session.commit,
            device=device,
            fingerprint=fingerprint,
            cases=tuple(self.results.values()),
            gated=sum(verdict in GATED for verdict in verdicts)
            + sum(result.unchanged for result in self.results.values()),
            selected=selected,
            complete=complete and judged >= selected,
            seconds=time.monotonic() - self.started,
            against=self.session.against.label if self.session.against else "",
            notes=(
                *(self.session.against.notes if self.session.against else ()),
                *(self.budgeting.notes() if self.budgeting else ()),
                *renamed_unseen(self.config, self.session.against, self.results.values()),
                *self.journal.notes(),
                *self.gpus.notes,
                *self.notes,
                *measured_on(gpus),
            ),
            code=tuple(self.code.results.values()),
            run_id=uuid.uuid4().hex,
            provenance=provenance(self.config.rootpath, os.environ),
            gpus=gpus,
        )

    def _where(self) -> tuple[DeviceInfo | None, Fingerprint | None]:
        fingerprints = [result.fingerprint for result in self.results.values() if result.fingerprint]
        fingerprint = fingerprints[0] if fingerprints else None
        known = self.session.pool.known()
        if known is not None:
            return known.device, fingerprint
        if fingerprint is None:
            return None, None
        must = fingerprint.must_match
        return DeviceInfo(kind="", arch=must["arch"], product=must["product"]), fingerprint


def run_settings(config: pytest.Config, cases: int) -> RunSettings:
    """Run settings from command line and ini. Raises UsageError for a value out of range."""
    mode = Mode.CHECK
    if config.getoption("attnperf_update_baselines"):
        mode = Mode.UPDATE
    elif config.getoption("attnperf_calibrate"):
        mode = Mode.CALIBRATE
    elif config.getoption("attnperf"):
        mode = Mode.GATE
    elif config.getoption("attnperf_warm"):
        mode = Mode.WARM
        refuse_warm(config)
    elif config.getoption("attnperf_together"):
        mode = Mode.TOGETHER
    seed = options.run_text(config, "seed")
    return RunSettings(
        mode=mode,
        cases=cases,
        processes=_processes(config, mode),
        second_look=int(options.run_number(config, "second-look", minimum=1, integer=True)),
        plan=BlockPlan(
            max_blocks=int(options.run_number(config, "blocks", minimum=3, integer=True)),
            block_us=options.run_number(config, "block-us", minimum=10),
            budget_us=options.run_number(config, "budget-ms", minimum=1) * 1000,
            timer=options.choice(config, "timer", TIMER_CHOICES),
        ),
        case_limit_seconds=case_limit_seconds(config)
        if mode is Mode.WARM
        else options.run_number(config, "case-limit", minimum=0.5),
        seed=int(options.parse_number("--attnperf-seed", seed, minimum=0, integer=True))
        if seed
        else random.SystemRandom().randrange(1 << 31),
        determinism_repeats=_determinism_repeats(config),
        record_local=bool(config.getoption("attnperf_record_local")),
        gates=options.run_text(config, "isolate") != "none",
        isolate=options.choice(config, "isolate", options.ISOLATIONS),
        given_options=options.given(config),
        pin_config=bool(config.getoption("attnperf_pin_config")),
        accepted=options.run_text(config, "accept"),
        profile=bool(config.getoption("attnperf_profile")),
        changed_only=bool(config.getoption("attnperf_changed")),
        budget_seconds=budget_seconds(config, mode),
    )


def _processes(config: pytest.Config, mode: Mode) -> int:
    """Fresh processes behind an entry, or behind a calibration. Raises UsageError for too few."""
    if mode is Mode.CALIBRATE:
        given = config.getoption("attnperf_calibrate")
        return int(options.parse_number("--attnperf-calibrate", given, minimum=2, integer=True))
    return int(options.run_number(config, "processes", minimum=options.MIN_BASELINE_PROCESSES, integer=True))


def _base_of(config: pytest.Config, builds: Sequence[pytest.Item]) -> BaseSide | None:
    """The base side of a run of compiled kernels alone: its baselines are read, and nothing of it is run or built."""
    text = options.run_text(config, "against")
    return resolve_base_side(text, launch_plan(config, builds), build="") if text and builds else None


def baseline_roots(config: pytest.Config, side: BaseSide | None) -> tuple[Path, ...]:
    """Where baselines are read, first found first: the base revision's own before this tree's, which a change under
    review could have edited; then those recorded on this machine.
    """
    root, name = config.rootpath, options.run_text(config, "baselines")
    roots = [root / name, root / LOCAL_STORE]
    base = None if side is None else side.root
    if base is not None and not Path(name).is_absolute() and (base / name).is_dir():
        roots.insert(0, base / name)
    return tuple(dict.fromkeys(roots))


def _determinism_repeats(config: pytest.Config) -> int:
    """Calls whose bits are compared. Raises UsageError for 1: one call has nothing to be compared with."""
    repeats = int(options.run_number(config, "determinism", minimum=0, integer=True))
    if repeats == 1:
        raise UsageError("--attnperf-determinism=1 compares nothing; give 2 or more calls, or 0 for none")
    return repeats


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """A second Ctrl-C while workers are ended must not leave any behind."""
    try:
        yield
    except KeyboardInterrupt:
        print("attnperf: still ending the workers", file=sys.stderr)  # noqa: T201


def is_ci() -> bool:
    """Whether a CI system runs us: strict is then the default."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")
