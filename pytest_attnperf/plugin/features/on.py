"""The list of features of a run. A feature's module is loaded only if the feature is on.

A new feature is a module with `make_feature` and a line in FEATURES.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pytest

from pytest_attnperf.environment.provenance import is_ci
from pytest_attnperf.plugin.cases import pair_of
from pytest_attnperf.plugin.config import RunConfig, is_xdist_worker, run_config
from pytest_attnperf.plugin.features.feature import Feature
from pytest_attnperf.plugin.keys import PLANNED
from pytest_attnperf.plugin.session_setup import device_kind
from pytest_attnperf.records.listing import import_listed_function
from pytest_attnperf.session.looking import UNTIMED
from pytest_attnperf.session.settings import RunMode, RunSettings

if TYPE_CHECKING:
    from pytest_attnperf.plugin.features.code_objects.code_run import CodeRun
    from pytest_attnperf.plugin.features.journal.journaling import Journaling
    from pytest_attnperf.plugin.features.live.progress import Progress
    from pytest_attnperf.plugin.gathered import Gathered
    from pytest_attnperf.records import CaseKey
    from pytest_attnperf.session.case_judge import Session
    from pytest_attnperf.workers.launch import LaunchPlan

Items = Sequence[pytest.Item]


@dataclass
class FeatureContext:
    """What every feature's `make_feature` gets: the run's config, session, results and items.

    cases, builds            items that are cases, and items that compile kernels
    plan                     returns how workers are started
    code, journal, progress  features that other features use; None if they are off or not made yet
    """

    config: pytest.Config
    session: Session
    gathered: Gathered
    cases: Items
    builds: Items
    plan: Callable[[], LaunchPlan]
    code: CodeRun | None = None
    journal: Journaling | None = None
    progress: Progress | None = None

    @property
    def asked(self) -> RunConfig:
        """Settings from the command line and the ini file."""
        return run_config(self.config)

    @property
    def settings(self) -> RunSettings:
        """Run settings of the session."""
        return self.session.bench.settings

    @property
    def mode(self) -> RunMode:
        """Mode of the run."""
        return self.settings.mode

    @property
    def is_worker(self) -> bool:
        """Whether this is a worker of xdist, which prints nothing."""
        return is_xdist_worker(self.config)

    @property
    def is_watched(self) -> bool:
        """Whether somebody wants to see every case of a run that times: with -v, and not in CI."""
        return self.config.get_verbosity() > 0 and self.mode not in UNTIMED and not is_ci()

    @cached_property
    def timed_keys(self) -> set[CaseKey]:
        """Keys of the cases that this run may time (see `find_timed_keys`)."""
        return find_timed_keys(self.config, self.cases, self.mode)


@dataclass(frozen=True)
class Listed:
    """An entry of FEATURES.

    module    module below pytest_attnperf.plugin; its `make_feature(given)` returns the Feature, or None
    is_on     returns whether a run has the feature, before the module is loaded
    prints    whether the feature prints; such a feature is off in workers of xdist
    """

    module: str
    is_on: Callable[[FeatureContext], bool]
    prints: bool = False


FEATURES: tuple[Listed, ...] = (
    Listed("features.budgeting", lambda run: bool(run.cases) and run.settings.budget_seconds is not None),
    Listed("features.sanitizing", lambda run: bool(run.cases) and bool(run.asked.sanitize)),
    Listed("features.warming", lambda run: bool(run.cases) and run.mode is RunMode.WARM),
    Listed("ending", lambda run: bool(run.asked.against)),
    Listed("features.journal.journaling", lambda run: run.asked.resume or not (run.mode in UNTIMED or run.is_worker)),
    Listed("features.code_objects.code_run", lambda run: bool(run.builds)),
    Listed("features.calibrating", lambda run: run.mode is RunMode.CALIBRATE, prints=True),
    Listed("summary", lambda run: run.asked.profile, prints=True),
    Listed("report_inputs", lambda run: bool(run.asked.history or run.asked.report), prints=True),
    Listed("features.live.progress", lambda run: True, prints=True),
    Listed("features.live.live_table", lambda run: bool(run.cases) and run.is_watched, prints=True),
    Listed("features.interrupts", lambda run: True, prints=True),
)
"""All features, in the order in which they are made and called."""


@dataclass(frozen=True)
class Features:
    """The features of one run, in the order in which they are called; `code` is the one that compiles kernels."""

    every: tuple[Feature, ...]
    code: CodeRun | None

    @classmethod
    def make_enabled(cls, given: FeatureContext) -> Features:
        """Makes this run's features of FEATURES. Raises UsageError, also if one has no `make_feature`."""
        wanted = (listed for listed in FEATURES if not (listed.prints and given.is_worker) and listed.is_on(given))
        made = [_make_feature(listed, given) for listed in wanted]
        return cls(tuple(feature for feature in made if feature is not None), given.code)

    def enter_phase(self, phase: str) -> None:
        """Calls `enter_phase` of all features with what the run does now."""
        for feature in self.every:
            feature.enter_phase(phase)


def _make_feature(listed: Listed, given: FeatureContext) -> Feature | None:
    make = import_listed_function(
        f"pytest_attnperf.plugin.{listed.module}", "make_feature", __file__, f'"{listed.module}"'
    )
    feature: Feature | None = make(given)
    return feature


def find_timed_keys(config: pytest.Config, cases: Items, mode: RunMode) -> set[CaseKey]:
    """Returns the keys of cases that this run may time: none if it only checks. Leaves out cases with timed=False, and
    on a CPU those whose backend is not timed there."""
    if mode in UNTIMED:
        return set()
    on_cpu = device_kind(config)[0] == "cpu"
    return {
        item.stash[PLANNED].key
        for item in cases
        if item.stash[PLANNED].timed and not (on_cpu and (pair := pair_of(item)) and not pair[0].times_on_cpu)
    }
