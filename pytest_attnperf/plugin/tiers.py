"""Which runs take a case: every run; those that time nothing, and nightly ones; or nightly ones only.

A run is of tier `pr` unless it says `--attnperf-tier=nightly` or names single tests: whoever types a test means it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.backends import Backend
from pytest_attnperf.errors import UsageError
from pytest_attnperf.gate.policy import NIGHTLY, PR, require_tier
from pytest_attnperf.plugin import options
from pytest_attnperf.plugin.config import run_config
from pytest_attnperf.workloads.base import Workload

NIGHTLY_MARK = "attnperf_nightly"
"""Marks the cases that only nightly runs take, of a test that every run takes."""


def run_tier(config: pytest.Config) -> str:
    """'pr' or 'nightly'. Raises UsageError for any other tier that was asked for."""
    asked = require_tier(run_config(config).tier, options.BY_NAME["tier"].flag)
    by_name = any("::" in str(arg) for arg in config.args)
    return asked or (NIGHTLY if by_name else PR)


def tier_of(item: pytest.Item, settings: Mapping[str, Any]) -> str:
    """'' for a case of every run, 'check' or 'nightly'; `settings` are its marker's."""
    if item.get_closest_marker(NIGHTLY_MARK) is not None:
        return NIGHTLY
    tier = str(settings.get("tier") or "")
    return "" if tier == PR else tier


def is_left_out(tier: str, config: pytest.Config) -> bool:
    """Whether this run leaves cases of this tier to nightly ones."""
    return bool(tier) and run_tier(config) != NIGHTLY and (tier == NIGHTLY or run_config(config).timed)


def params(
    backends: Sequence[Backend], workloads: Sequence[Workload], chosen: Collection[Backend], nightly: Collection[str]
) -> list[Any]:
    """A parameter for each workload and each of the chosen backends; what is left to nightly runs is marked so.

    backends   of the test, whatever the command line chooses of them
    nightly    ids of workloads, or `backend-workload` of single cases
    """
    found = []
    for workload in workloads:
        for backend in (one for one in backends if one in chosen):
            name = f"{backend.name}-{workload.id}"
            left = workload.id in nightly or name in nightly
            marks = [getattr(pytest.mark, NIGHTLY_MARK)] if left else []
            found.append(pytest.param(backend, workload, id=name, marks=marks))
    return found


def left_to_nightly(
    settings: Mapping[str, Any], backends: Sequence[Backend], workloads: Sequence[Workload], where: str
) -> frozenset[str]:
    """What the marker's `nightly` and `each` leave to nightly runs, as `params` takes it.

    nightly   those of the workloads that only nightly runs take
    each      how many workloads other runs take with each backend, of a test that is never timed: they are dealt in
              turn, so that together the backends take all

    Raises UsageError for a workload that is none of the test's, for a number that is none, and for both together.
    """
    nightly, each = settings.get("nightly"), settings.get("each")
    if nightly is not None and each is not None:
        raise UsageError(f"{where}: the attnperf marker has nightly= and each=; give one of them")
    if nightly is not None:
        names = [workload if isinstance(workload, str) else workload.id for workload in nightly]
        known = [workload.id for workload in workloads]
        for name in names:
            if name not in known:
                raise UsageError(f"{where}: nightly={name!r} is none of the workloads: {', '.join(known)}")
        return frozenset(names)
    if each is None:
        return frozenset()
    if not isinstance(each, int) or isinstance(each, bool) or each < 1:
        raise UsageError(f"{where}: the attnperf marker has each={each!r}; allowed: a whole number of at least 1")
    if settings.get("timed", True):
        raise UsageError(f"{where}: the attnperf marker has each= and is timed; give nightly=[...], or timed=False")
    return _undealt([backend.name for backend in backends], [workload.id for workload in workloads], each)


def _undealt(backends: Sequence[str], workloads: Sequence[str], each: int) -> frozenset[str]:
    dealt = set()
    turn = 0
    for backend in backends:
        for _ in range(min(each, len(workloads))):
            dealt.add(f"{backend}-{workloads[turn % len(workloads)]}")
            turn += 1
    return frozenset(f"{backend}-{workload}" for backend in backends for workload in workloads) - dealt


def rank(path: Path, config: pytest.Config) -> int:
    """The place of a file among those that `--attnperf-first` names; behind them where it is not named."""
    first = run_config(config).first.replace(",", " ").split()
    names = [Path(name).stem for name in first]
    return names.index(path.stem) if path.stem in names else len(names)
