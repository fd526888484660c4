"""Makes the policy of a case from its settings: override over marker over command line over ini over default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.plugin import options
from pytest_attnperf.plugin.config import parse_number, run_config
from pytest_attnperf.records.costs import CostSettings, parse_cost_text


def case_overrides(texts: Sequence[str]) -> dict[str, Any]:
    """Returns `--attnperf-override` KEY=VALUE as {field: text}. Raises UsageError for an unknown key or no '='."""
    known = {option.field for option in (*options.CASE_OPTIONS, *options.CODE_OPTIONS)}
    overrides: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.replace("-", "_")
        if not equals or key not in known:
            raise UsageError(f"--attnperf-override={text!r}: expected KEY=VALUE with KEY one of {sorted(known)}")
        overrides[key] = value
    return overrides


def make_cost_settings(config: pytest.Config) -> CostSettings:
    """Returns the costs of the command line or the ini file, and those of --attnperf-override. Raises UsageError for a
    cost that is not known, and a percentage that is out of range."""
    asked = run_config(config)
    typed = case_overrides(asked.override).get("costs", "")
    return CostSettings(
        parse_cost_text(asked.text("costs"), asked.name_of("costs")),
        parse_cost_text(str(typed), "--attnperf-override"),
    )


def check_case_options(config: pytest.Config) -> None:
    """Raises UsageError for case settings of the command line or the ini file that are no policy."""
    try:
        make_policy(config, {})
        make_cost_settings(config)
    except (UsageError, ValueError) as error:
        raise UsageError(f"an option or ini key: {error}") from error


def make_policy(config: pytest.Config, settings: Mapping[str, Any]) -> Policy:
    """Returns the policy of a case whose marker has these keywords. Raises UsageError for a value that is invalid."""
    asked = run_config(config)
    chosen: dict[str, Any] = {option.field: asked.text(option.name) for option in options.CASE_OPTIONS}
    chosen.update({key: settings[key] for key in chosen if settings.get(key) is not None})
    chosen.update(case_overrides(asked.override))
    return Policy(
        threshold_percent=parse_number("threshold", chosen["threshold"], minimum=0),
        floor_us=parse_number("floor_us", chosen["floor_us"], minimum=0),
        suite_false_alarm_rate=parse_number("suite_rate", chosen["suite_rate"], minimum=1e-9),
        creep_percent=parse_number("creep", chosen["creep"], minimum=0),
        fail_on=_split_verdicts(chosen["fail_on"]),
        tier=settings.get("tier") or "",
        quarantine=settings.get("quarantine") or "",
        quarantine_until=settings.get("until") or "",
    )


def _split_verdicts(value: object) -> Any:
    """Splits `value`, a comma-separated text or a list, into upper-case names of verdicts; Policy checks them later."""
    words = value.split(",") if isinstance(value, str) else list(value)  # type: ignore[call-overload]
    return tuple(str(word).strip().upper() for word in words if str(word).strip())
