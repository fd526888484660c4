"""`--attnperf-budget` in the user's pytest: the first item judges all cases; each item then reports its verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.plugin import options
from pytest_attnperf.plugin.config import RunConfig
from pytest_attnperf.plugin.features.feature import Feature
from pytest_attnperf.plugin.gathered import Gathered
from pytest_attnperf.plugin.keys import PLANNED
from pytest_attnperf.records import CaseKey
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.case_judge import Session
from pytest_attnperf.session.settings import Case, RunMode
from pytest_attnperf.session.time_budget import Budget
from pytest_attnperf.session.time_left import parse_seconds

if TYPE_CHECKING:
    from pytest_attnperf.plugin.features.on import FeatureContext

FLAG = options.BY_NAME["budget"].flag


def budget_seconds(asked: RunConfig, mode: RunMode, *, distributed: bool) -> float | None:
    """Returns `--attnperf-budget` in seconds of wall time; None without one, or if it is from the ini file and the run
    does not gate. Raises UsageError for an invalid time, and for options that a time limit cannot be combined with."""
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
        why = "recording cannot be limited in time: record first, without a budget"
        raise UsageError(f"{FLAG}={text} with --attnperf-record-local: {why}")
    if asked.profile:
        why = "every case is also profiled, without a limit: run it without a budget"
        raise UsageError(f"{FLAG}={text} with --attnperf-profile: {why}")
    return seconds


class Budgeting(Feature):
    """Judges a run within `--attnperf-budget`; the clock starts at `before_run`."""

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
        """Starts the clock of the budget."""
        seconds = self._session.bench.settings.budget_seconds
        assert seconds is not None
        self._budget = Budget(self._session, seconds, (), self._session.bench.clock(), self._say)

    def judge_case(self, _item: pytest.Item, key: CaseKey) -> CaseResult | None:
        """Returns the result of a case; None for one that a mark skips. The first call judges all cases of the run,
        within the time budget."""
        assert self._budget is not None
        if not self._begun:
            self._begun = True
            self._budget.cases = cases_of(self._items)
            self._budget.spend_all()
        return self._budget.results.get(key)

    def before_shutdown(self, *, interrupted: bool) -> None:
        """If the run stopped early, stores the results of judged cases whose items pytest did not reach."""
        session: Any = self._config.pluginmanager.get_plugin("session")
        if self._budget is not None and (session.shouldfail or session.shouldstop or interrupted):
            for key, result in self._budget.results.items():
                self._gathered.cases.setdefault(key, result)

    def collect_notes(self, _cases: Iterable[CaseResult]) -> Sequence[str]:
        """Returns a note on how the budget was spent; () if nothing was judged."""
        return () if self._budget is None else self._budget.describe_spending()


def make_feature(given: FeatureContext) -> Budgeting:
    """Returns the feature of a run with a time budget; its lines go to the run's progress."""

    def report_step(text: str) -> None:
        if given.progress is not None:
            given.progress.report_step(text)

    return Budgeting(given.config, given.session, given.cases, report_step, given.gathered)


def cases_of(items: Sequence[pytest.Item]) -> list[Case]:
    """Returns the items' cases in order, each with the key of the next one. Leaves out cases that a mark skips, which
    pytest reports."""
    found = [item.stash[PLANNED] for item in items if PLANNED in item.stash and not _is_skipped(item)]
    following = [*[case.key for case in found[1:]], None]
    return [replace(case, next_key=after) for case, after in zip(found, following, strict=False)]


def _is_skipped(item: pytest.Item) -> bool:
    """Returns whether a mark skips the item. A text condition counts as False: only pytest evaluates it."""
    if item.get_closest_marker("skip") is not None:
        return True
    conditions = [c for mark in item.iter_markers("skipif") for c in (*mark.args, mark.kwargs.get("condition", False))]
    return any(bool(condition) for condition in conditions if not isinstance(condition, str))
