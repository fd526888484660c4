"""Which modes of a run are on; each is loaded only then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_attnperf.plugin.config import run_config
from pytest_attnperf.plugin.features.base import Feature
from pytest_attnperf.plugin.xdist_roles import is_xdist_controller, is_xdist_worker
from pytest_attnperf.session.looking import UNTIMED
from pytest_attnperf.session.settings import Mode

if TYPE_CHECKING:
    import pytest

    from pytest_attnperf.plugin.features.code_objects.code_run import CodeRun
    from pytest_attnperf.plugin.features.journal.journaling import Journal
    from pytest_attnperf.plugin.features.live.progress import Progress
    from pytest_attnperf.plugin.gathered import Gathered
    from pytest_attnperf.session.judge import Session
    from pytest_attnperf.workers.launch import LaunchPlan


@dataclass(frozen=True)
class Features:
    """Those of one run, in the order in which they act; `code` is the one that compiles kernels."""

    every: tuple[Feature, ...] = ()
    code: CodeRun | None = None

    def enter(self, phase: str) -> None:
        """Say what is done from now on beside judging cases."""
        for feature in self.every:
            feature.enter(phase)


def features_of(
    config: pytest.Config,
    session: Session,
    gathered: Gathered,
    cases: Sequence[pytest.Item],
    code: CodeRun | None,
) -> Features:
    """The features of a run of these cases, and of kernels where `code` compiles some. Raises UsageError."""
    asked, settings = run_config(config), session.settings
    found: list[Feature] = []
    journal = _journal(config, session)
    worker = is_xdist_worker(config)
    progress = None if worker else _progress(config, gathered.selected, code)
    if cases and settings.budget_seconds is not None:
        from pytest_attnperf.plugin.features.budgeting import Budgeting

        say = (lambda _text: None) if progress is None else progress.say
        found.append(Budgeting(config, session, cases, say, gathered))
    if asked.against:
        from pytest_attnperf.plugin.features.base_side import BaseSide

        found.append(BaseSide(config, session.against))
    found += [] if journal is None else [journal]
    if cases and settings.mode is Mode.WARM:
        from pytest_attnperf.plugin.features.warming import Warming

        found.append(Warming.of(config, session, len(cases)))
    found += [] if code is None else [code]
    if not worker:
        found += _printing(config, session)
        found += [] if progress is None else [progress]
        found.append(_interrupts(config, settings.mode, journal, progress))
    return Features(tuple(found), code)


def compiling(
    config: pytest.Config,
    session: Session,
    builds: Sequence[pytest.Item],
    plan: Callable[[], LaunchPlan],
) -> CodeRun | None:
    """What compiles kernels, of a run that has some."""
    if not builds:
        return None
    from pytest_attnperf.plugin.features.code_objects.code_run import CodeRun

    return CodeRun(config, builds, session.settings, session.store.roots, plan)


def _journal(config: pytest.Config, session: Session) -> Journal | None:
    """Of a run that measures; of a worker of xdist only where it takes something over."""
    asked, settings = run_config(config), session.settings
    if asked.resume:
        from pytest_attnperf.plugin.features.journal.journal_header import refuse_resume

        refuse_resume(config, settings)
    if settings.mode in UNTIMED or (is_xdist_worker(config) and not asked.resume):
        return None
    from pytest_attnperf.plugin.features.journal.journaling import Journal

    return Journal.of(config, settings, session.commit)


def _progress(config: pytest.Config, selected: int, code: CodeRun | None) -> Progress | None:
    """How far the run is, unless nobody wants to hear that."""
    progress = None
    if config.get_verbosity() >= 0:
        from pytest_attnperf.plugin.features.live.progress import Progress

        progress = Progress(config, selected, (lambda: None) if code is None else (lambda: code.compiling))
        progress.follow()
    return progress


def _printing(config: pytest.Config, session: Session) -> list[Feature]:
    """What has lines of its own at the end."""
    asked, found = run_config(config), list[Feature]()
    if session.settings.mode is Mode.CALIBRATE:
        from pytest_attnperf.plugin.features.calibrating import Calibrating

        found.append(Calibrating(session.settings.second_look))
    if asked.profile:
        from pytest_attnperf.plugin.features.profiles import Profiles

        found.append(Profiles())
    if (asked.history or asked.report) and session.settings.mode not in UNTIMED:
        from pytest_attnperf.plugin.features.publishing import Publishing

        found.append(Publishing(asked))
    return found


def _interrupts(config: pytest.Config, mode: Mode, journal: Journal | None, progress: Progress | None) -> Feature:
    from pytest_attnperf.plugin.features.interrupts import watch

    resume_command = (lambda: "") if journal is None else journal.resume_command
    return watch(config, mode, resume_command, (lambda _phase: None) if progress is None else progress.enter)


def deal_out(config: pytest.Config, gathered: Gathered, features: Features) -> None:
    """Follow which tests xdist's workers have ended, in the process that deals them out."""
    if is_xdist_controller(config):
        from pytest_attnperf.plugin.features.gpus.dealt import Dealt
        from pytest_attnperf.plugin.features.live.progress import Progress

        progress = next((feature for feature in features.every if isinstance(feature, Progress)), None)
        config.pluginmanager.register(Dealt(gathered, progress), "attnperf-dealt")
