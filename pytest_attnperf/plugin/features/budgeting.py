"""`--attnperf-budget` inside the user's pytest: all cases are judged when the first is due, and items tell verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.plugin import options
from pytest_attnperf.plugin.config import RunConfig
from pytest_attnperf.plugin.features.base import Feature
from pytest_attnperf.plugin.gathered import Gathered
from pytest_attnperf.plugin.keys import PLANNED
from pytest_attnperf.records import CaseKey
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.budget import Budget
from pytest_attnperf.session.judge import Session
from pytest_attnperf.session.settings import Case, RunMode
from pytest_attnperf.session.time_left import parse_seconds

if TYPE_CHECKING:
    from pytest_attnperf.plugin.features.on import FeatureContext

FLAG = options.BY_NAME["budget"].flag


def budget_seconds(asked: RunConfig, mode: RunMode, *, distributed: bool) -> float | None:
    """Seconds of wall time that the run may take; None without a limit, and where an ini file's is for other runs.

    Raises UsageError for a time that is none, and beside options whose work has no end that a clock may set.
    """
    text = asked.budget
    if not text or (mode is not RunMode.GATE and "budget" not in asked.typed):
        return None
    if mode is not RunMode.GATE:
        raise UsageError(f"{FLAG}={text} is for runs that gate: give it with --attnperf, and with no other mode")
    seconds = parse_seconds(text, FLAG)
    if distributed:
        raise UsageError(f"{FLAG}={text} with -n: each worker of xdist sees only some cases; drop one (-n0)")
    if asked.in_process:
        raise UsageError(f"{FLAG}={text} needs processes of its own; drop --attnperf-isolate=none")
    if asked.record_local:
        why = "recording takes as long as it takes: run it first, without a budget"
        raise UsageError(f"{FLAG}={text} with --attnperf-record-local: {why}")
    if asked.profile:
        why = "a profile of every case is taken beside its verdict: run it alone"
        raise UsageError(f"{FLAG}={text} with --attnperf-profile: {why}")
    return seconds


class Budgeting(Feature):
    """The budget of one run; its clock runs from `begin` on."""

    def __init__(
        self,
        config: pytest.Config,
        session: Session,
        items: Sequence[pytest.Item],
        say: Callable[[str], None],
        gathered: Gathered,
    ) -> None:
        self._config, self._session, self._items, self._say = config, session, items, say
        self._gathered = gathered
        self._budget: Budget | None = None
        self._begun = False

    def before_run(self) -> None:
        """Start the clock."""
        seconds = self._session.bench.settings.budget_seconds
        assert seconds is not None
        self._budget = Budget(self._session, seconds, (), self._session.bench.clock(), self._say)

    def judge_case(self, _item: pytest.Item, key: CaseKey) -> CaseResult | None:
        """The verdict of a case; None of one that was left out. The first call judges all cases, and takes so long."""
        assert self._budget is not None
        if not self._begun:
            self._begun = True
            self._budget.cases = cases_of(self._items)
            self._budget.spend_all()
        return self._budget.results.get(key)

    def before_shutdown(self, *, interrupted: bool) -> None:
        """Let no verdict be lost of a run that ended before pytest had come to it."""
        session: Any = self._config.pluginmanager.get_plugin("session")
        if self._budget is not None and (session.shouldfail or session.shouldstop or interrupted):
            for key, result in self._budget.results.items():
                self._gathered.cases.setdefault(key, result)

    def collect_notes(self, _cases: Iterable[CaseResult]) -> Sequence[str]:
        """What the time went to."""
        return () if self._budget is None else self._budget.describe_spending()


def make_feature(given: FeatureContext) -> Budgeting:
    """Of a run with a budget; what takes long is said where progress is shown."""

    def report_step(text: str) -> None:
        if given.progress is not None:
            given.progress.report_step(text)

    return Budgeting(given.config, given.session, given.cases, report_step, given.gathered)


def cases_of(items: Sequence[pytest.Item]) -> list[Case]:
    """The cases of these items, in their order, without those that pytest skips: these say so when their turn comes."""
    found = [item.stash[PLANNED] for item in items if PLANNED in item.stash and not _is_skipped(item)]
    following = [*[case.key for case in found[1:]], None]
    return [replace(case, next_key=after) for case, after in zip(found, following, strict=False)]


def _is_skipped(item: pytest.Item) -> bool:
    """Whether a mark skips the item. A condition that is text is evaluated by pytest alone: such a case is measured."""
    if item.get_closest_marker("skip") is not None:
        return True
    conditions = [c for mark in item.iter_markers("skipif") for c in (*mark.args, mark.kwargs.get("condition", False))]
    return any(bool(condition) for condition in conditions if not isinstance(condition, str))
