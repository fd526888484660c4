"""Case settings of one item: override over marker over command line over ini over default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.plugin import options
from pytest_attnperf.plugin.cases import MARKER, marker_settings, switches, tier_of
from pytest_attnperf.plugin.config import parse_number, run_config
from pytest_attnperf.plugin.keys import PLANNED, case_key
from pytest_attnperf.records import CaseKey
from pytest_attnperf.session.settings import Case


def policy_for(config: pytest.Config, item: pytest.Item) -> Policy:
    """The effective policy of an item. Raises pytest.UsageError naming setting and value."""
    marker = item.get_closest_marker(MARKER)
    try:
        settings = {} if marker is None else marker_settings(marker, item.nodeid)
        return _policy(config, settings | {"tier": tier_of(item)})
    except (UsageError, ValueError) as error:
        raise pytest.UsageError(f"{item.nodeid}: {error}") from error


def planned(config: pytest.Config, item: pytest.Item, key: CaseKey) -> Case:
    """An item as the session judges it, without the one behind it. Raises as `policy_for`."""
    return Case(key, item.nodeid, policy_for(config, item), None, **switches(item))


def plan_cases(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Say of every item that is a case what it is judged by. Raises pytest.UsageError for settings of the command line,
    the ini file or a marker that make no policy: before anything runs, and not inside of a test."""
    try:
        _policy(config, {})
    except (UsageError, ValueError) as error:
        raise pytest.UsageError(f"the options and the ini file of this run: {error}") from error
    for item in items:
        if (key := case_key(item)) is not None:
            item.stash[PLANNED] = planned(config, item, key)


def _policy(config: pytest.Config, settings: Mapping[str, Any]) -> Policy:
    asked = run_config(config)
    chosen: dict[str, Any] = {option.field: asked.text(option.name) for option in options.CASE_OPTIONS}
    chosen.update({key: settings[key] for key in chosen if settings.get(key) is not None})
    chosen.update(options.case_overrides(asked.override))
    return Policy(
        threshold_percent=parse_number("threshold", chosen["threshold"], minimum=0),
        floor_us=parse_number("floor_us", chosen["floor_us"], minimum=0),
        suite_false_alarm_rate=parse_number("suite_rate", chosen["suite_rate"], minimum=1e-9),
        creep_percent=parse_number("creep", chosen["creep"], minimum=0),
        fail_on=_verdicts(chosen["fail_on"]),
        tier=settings.get("tier") or "",
        quarantine=settings.get("quarantine") or "",
        quarantine_until=settings.get("until") or "",
    )


def _verdicts(value: object) -> Any:
    """Words, upper case; Policy itself says which may fail a case."""
    words = value.split(",") if isinstance(value, str) else list(value)  # type: ignore[call-overload]
    return tuple(str(word).strip().upper() for word in words if str(word).strip())
