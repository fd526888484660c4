"""`--attnperf-budget` inside the user's pytest: all cases are judged when the first is due, and items tell verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.plugin import options
from pytest_attnperf.plugin.cases import case_key, switches
from pytest_attnperf.plugin.policy_settings import policy_for
from pytest_attnperf.records import CaseKey
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.budget import Budget
from pytest_attnperf.session.durations import seconds_of
from pytest_attnperf.session.judge import Session
from pytest_attnperf.session.settings import Case, Mode

FLAG = options.BY_NAME["budget"].flag


def budget_seconds(config: pytest.Config, mode: Mode) -> float | None:
    """Seconds of wall time that the run may take; None without a limit, and where an ini file's is for other runs.

    Raises UsageError for a time that is none, and beside options whose work has no end that a clock may set.
    """
    text = options.run_text(config, "budget")
    if not text:
        return None
    if mode is not Mode.GATE:
        if config.getoption("attnperf_budget") is None:
            return None
        raise UsageError(f"{FLAG}={text} is for runs that gate: give it with --attnperf, and with no other mode")
    seconds = seconds_of(text, FLAG)
    _refuse_beside(config, text)
    return seconds


def _refuse_beside(config: pytest.Config, text: str) -> None:
    if distributed(config):
        raise UsageError(f"{FLAG}={text} with -n: each worker of xdist sees only some cases; drop one (-n0)")
    if options.run_text(config, "isolate") == "none":
        raise UsageError(f"{FLAG}={text} needs processes of its own; drop --attnperf-isolate=none")
    for name, why in (
        ("record_local", "recording takes as long as it takes: run it first, without a budget"),
        ("profile", "a profile of every case is taken beside its verdict: run it alone"),
    ):
        if config.getoption(f"attnperf_{name}"):
            raise UsageError(f"{FLAG}={text} with --attnperf-{name.replace('_', '-')}: {why}")


def distributed(config: pytest.Config) -> bool:
    """Whether cases are spread over the workers of xdist."""
    return hasattr(config, "workerinput") or config.getoption("dist", default="no") != "no"


class Budgeting:
    """The budget of one run; its clock runs from here on."""

    def __init__(
        self, config: pytest.Config, session: Session, items: Sequence[pytest.Item], say: Callable[[str], None]
    ) -> None:
        self._config, self._items = config, items
        seconds = session.settings.budget_seconds
        assert seconds is not None
        self._budget = Budget(session, seconds, (), session.clock(), say)
        self._begun = False

    def verdict(self, key: CaseKey) -> CaseResult | None:
        """The verdict of a case; None of one that was left out. The first call judges all cases, and takes so long."""
        if not self._begun:
            self._begun = True
            self._budget.cases = cases_of(self._config, self._items)
            self._budget.spend_all()
        return self._budget.results.get(key)

    @property
    def results(self) -> dict[CaseKey, CaseResult]:
        """All verdicts there are, also of cases that pytest has not come to."""
        return self._budget.results

    def notes(self) -> tuple[str, ...]:
        """What the time went to."""
        return self._budget.notes()


def cases_of(config: pytest.Config, items: Sequence[pytest.Item]) -> list[Case]:
    """The cases of these items, in their order. Left out are those that pytest skips, and those whose own settings are
    off: these say so when their turn comes."""
    found: list[Case] = []
    for item in items:
        key = case_key(item)
        if key is None or _is_skipped(item):
            continue
        try:
            found.append(Case(key, item.nodeid, policy_for(config, item), None, **switches(item)))
        except (pytest.UsageError, UsageError):
            continue
    following = [case.key for case in found[1:]]
    return [
        Case(case.key, case.nodeid, case.policy, after, case.timed, case.breakdown)
        for case, after in zip(found, [*following, None], strict=True)
    ]


def _is_skipped(item: pytest.Item) -> bool:
    """Whether a mark skips the item. A condition that is text is evaluated by pytest alone: such a case is measured."""
    if item.get_closest_marker("skip") is not None:
        return True
    conditions = [c for mark in item.iter_markers("skipif") for c in (*mark.args, mark.kwargs.get("condition", False))]
    return any(bool(condition) for condition in conditions if not isinstance(condition, str))
