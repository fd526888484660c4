"""What the base side has and this tree lacks: a case cannot leave the comparison unseen, also not under a new name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest

from pytest_attnperf.plugin.features.base import Feature
from pytest_attnperf.plugin.selection import is_unfiltered
from pytest_attnperf.records import CaseKey
from pytest_attnperf.reports.run.overview import is_new
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.interleaved import Against


class BaseSide(Feature):
    """Of a run against a base side; in a controller of xdist nobody knows that side."""

    def __init__(self, config: pytest.Config, against: Against | None) -> None:
        self._config, self._against = config, against

    def findings(self, cases: Mapping[CaseKey, CaseResult]) -> Sequence[str]:
        """What has gone since the base."""
        return only_on_base(self._config, self._against, cases)

    def notes(self, cases: Iterable[CaseResult]) -> Sequence[str]:
        """What may have gone unseen."""
        return renamed_unseen(self._config, self._against, cases)


def only_on_base(config: pytest.Config, against: Against | None, here: Mapping[CaseKey, object]) -> tuple[str, ...]:
    """Findings about files and cases that the base side has and this tree has lost, where everything was selected."""
    if against is None or not is_unfiltered(config):
        return ()
    files = (
        f"{name} exists on {against.name} and not here: its cases were removed or renamed" for name in against.vanished
    )
    left = getattr(config.pluginmanager.get_plugin("attnperf-cases"), "left_to_nightly", ())
    gone = (key for key in against.only_there(here) if key not in left)
    return (*files, *(f"{key} exists on {against.name} and not here: it was removed or renamed" for key in gone))


def renamed_unseen(config: pytest.Config, against: Against | None, cases: Iterable[CaseResult]) -> tuple[str, ...]:
    """A note where new cases may be renamed ones, and this run could not see which the base side has besides."""
    if not any(map(is_new, cases)) or (against is not None and is_unfiltered(config)):
        return ()
    why = "workers of xdist ran the cases" if against is None else "only some cases were selected"
    return (f"whether a new case is an old one renamed was not looked at, because {why}: run whole suites, without -n",)
