"""Which modes of a run are on; each is loaded only then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from pytest_attnperf.plugin.cases import pair_of
from pytest_attnperf.plugin.config import is_xdist_controller, is_xdist_worker, run_config
from pytest_attnperf.plugin.ending import BaseSide
from pytest_attnperf.plugin.features.base import Feature
from pytest_attnperf.plugin.keys import PLANNED
from pytest_attnperf.plugin.session_setup import device_kind
from pytest_attnperf.session.looking import UNTIMED
from pytest_attnperf.session.settings import Mode

if TYPE_CHECKING:
    from pytest_attnperf.plugin.features.code_objects.code_run import CodeRun
    from pytest_attnperf.plugin.features.journal.journaling import Journal
    from pytest_attnperf.plugin.features.live.progress import Progress
    from pytest_attnperf.plugin.gathered import Gathered
    from pytest_attnperf.records import CaseKey
    from pytest_attnperf.session.judge import Session
    from pytest_attnperf.workers.launch import LaunchPlan

Items = Sequence[pytest.Item]


@dataclass(frozen=True)
class Features:
    """Those of one run, in the order in which they act; `code` is the one that compiles kernels."""

    every: tuple[Feature, ...]
    code: CodeRun | None

    @classmethod
    def of(
        cls, config: pytest.Config, session: Session, gathered: Gathered, cases: Items, code: CodeRun | None
    ) -> Features:
        """What a run of these cases does besides judging them. Raises UsageError."""
        worker, mode = is_xdist_worker(config), session.bench.settings.mode
        journal = _journal(config, session)
        progress = None if worker else _progress(config, gathered, code, to_be_timed(config, cases, mode))
        found: list[Feature | None] = [*_of_cases(config, session, gathered, cases, progress), journal, code]
        if not worker:
            from pytest_attnperf.plugin.features.interrupts import watch

            resume_command = (lambda: "") if journal is None else journal.resume_command
            enter = (lambda _phase: None) if progress is None else progress.enter
            found += [*_printing(config, session), progress, watch(config, mode, resume_command, enter)]
        return cls(tuple(feature for feature in found if feature is not None), code)

    def enter(self, phase: str) -> None:
        """Say what is done from now on beside judging cases."""
        for feature in self.every:
            feature.enter(phase)


def compiling(
    config: pytest.Config, session: Session, cases: Items, builds: Items, plan: Callable[[], LaunchPlan]
) -> CodeRun | None:
    """What compiles kernels, of a run that has some beside its cases."""
    if not builds:
        return None
    from pytest_attnperf.plugin.features.code_objects.code_run import CodeRun

    settings = session.bench.settings
    timed = to_be_timed(config, cases, settings.mode)
    return CodeRun(config, builds, settings, session.bench.store.roots, plan, timed)


def to_be_timed(config: pytest.Config, cases: Items, mode: Mode) -> set[CaseKey]:
    """Keys of the cases that this run may time. Without a GPU a backend says what is not; a test may do it, too."""
    if mode in UNTIMED:
        return set()
    on_cpu = device_kind(config)[0] == "cpu"
    return {
        item.stash[PLANNED].key
        for item in cases
        if item.stash[PLANNED].timed and not (on_cpu and (pair := pair_of(item)) and not pair[0].times_on_cpu)
    }


def _of_cases(
    config: pytest.Config, session: Session, gathered: Gathered, cases: Items, progress: Progress | None
) -> list[Feature]:
    """Those that judge cases in another way than one by one, and see what has gone since the base side."""
    found: list[Feature] = []
    if cases and session.bench.settings.budget_seconds is not None:
        from pytest_attnperf.plugin.features.budgeting import Budgeting

        say = (lambda _text: None) if progress is None else progress.say
        found.append(Budgeting(config, session, cases, say, gathered))
    if cases and session.bench.settings.mode is Mode.WARM:
        from pytest_attnperf.plugin.features.warming import Warming

        found.append(Warming.of(config, session, len(cases)))
    if run_config(config).against:
        found.append(BaseSide(config, session.bench.against))
    return found


def _journal(config: pytest.Config, session: Session) -> Journal | None:
    """Of a run that measures; of a worker of xdist only where it takes something over."""
    asked, settings = run_config(config), session.bench.settings
    if asked.resume:
        from pytest_attnperf.plugin.features.journal.journal_header import refuse_resume

        refuse_resume(config, settings)
    if settings.mode in UNTIMED or (is_xdist_worker(config) and not asked.resume):
        return None
    from pytest_attnperf.plugin.features.journal.journaling import Journal

    return Journal.of(config, settings, session.bench.commit)


def _progress(config: pytest.Config, gathered: Gathered, code: CodeRun | None, timed: set[CaseKey]) -> Progress | None:
    """How far the run is, unless nobody wants to hear that; and what xdist's workers have ended, where these judge."""
    from pytest_attnperf.plugin.features.live.progress import Dealt, Progress

    progress = None
    if config.get_verbosity() >= 0:
        progress = Progress(
            config,
            gathered.selected,
            (lambda: None) if code is None else (lambda: code.compiling),
            timed=timed,
            uncompiled=(lambda: None) if code is None else (lambda: code.uncompiled),
        )
        progress.follow()
    if is_xdist_controller(config):
        config.pluginmanager.register(Dealt(gathered, progress), "attnperf-dealt")
    return progress


def _printing(config: pytest.Config, session: Session) -> list[Feature]:
    """What has lines of its own at the end."""
    asked, found = run_config(config), list[Feature]()
    if session.bench.settings.mode is Mode.CALIBRATE:
        from pytest_attnperf.plugin.features.calibrating import Calibrating

        found.append(Calibrating(session.bench.settings.second_look))
    if asked.profile:
        from pytest_attnperf.plugin.summary import Profiles

        found.append(Profiles())
    if (asked.history or asked.report) and session.bench.settings.mode not in UNTIMED:
        from pytest_attnperf.plugin.report_inputs import Publishing

        found.append(Publishing(asked))
    return found
