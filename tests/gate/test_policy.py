from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from pytest_attnperf.errors import BaselineError, UsageError
from pytest_attnperf.gate.policy import MAY_FAIL, Policy
from pytest_attnperf.records import Verdict


def test_defaults_are_those_of_the_design() -> None:
    """2 %, 0.5 us, 1 % of suites, 5 % of creep, and the four verdicts that always fail."""
    assert Policy().to_record() == {
        "threshold_percent": 2.0,
        "floor_us": 0.5,
        "suite_false_alarm_rate": 0.01,
        "creep_percent": 5.0,
        "fail_on": ["ERROR", "INCORRECT", "SLOWER", "SUSPICIOUS"],
    }


def test_a_record_survives_json() -> None:
    """What is stored and read back equals what was recorded, and loosens nothing."""
    policy = Policy(threshold_percent=3, fail_on=(Verdict.UNDECIDED, Verdict.SLOWER))
    stored = msgspec.json.decode(msgspec.json.encode(policy.to_record()))
    assert stored == policy.to_record()
    assert policy.list_loosened(stored) == []


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("threshold_percent", -1, "policy threshold_percent is -1; allowed: a number from 0 to 100"),
        ("threshold_percent", "2", "policy threshold_percent is '2'; allowed: a number from 0 to 100"),
        ("threshold_percent", True, "policy threshold_percent is True; allowed: a number from 0 to 100"),
        ("floor_us", math.nan, "policy floor_us is nan; allowed: a finite number of microseconds, 0 or more"),
        ("floor_us", math.inf, "policy floor_us is inf; allowed: a finite number of microseconds, 0 or more"),
        ("suite_false_alarm_rate", 0, "policy suite_false_alarm_rate is 0; allowed: a number from 1e-6 to 0.4"),
        ("creep_percent", 1001, "policy creep_percent is 1001; allowed: a number from 0 to 1000"),
        ("fail_on", "SLOWER", "policy fail_on is 'SLOWER'; allowed: a list of SLOWER, INCORRECT"),
        ("fail_on", ["SLOW"], "policy fail_on has 'SLOW', which cannot fail a case; allowed: SLOWER, INCORRECT"),
        ("fail_on", [Verdict.FASTER], "policy fail_on has 'FASTER', which cannot fail a case; allowed: SLOWER"),
    ],
)
def test_a_bad_setting_is_named_with_what_is_allowed(field: str, value: object, text: str) -> None:
    """Each field refuses what it cannot mean, naming itself, the value and the allowed range."""
    settings: dict[str, Any] = {field: value}
    with pytest.raises(UsageError) as caught:
        Policy(**settings)
    assert str(caught.value).startswith(text)


def test_names_become_verdicts_in_one_order() -> None:
    """`fail_on` may be given as text and in any order; the policies are equal."""
    names: Any = ["ERROR", "SLOWER"]
    assert Policy(fail_on=names) == Policy(fail_on=(Verdict.SLOWER, Verdict.ERROR))
    assert Policy(fail_on=names).fail_on == (Verdict.SLOWER, Verdict.ERROR)


def test_the_gate_is_one_sided() -> None:
    """Neither FASTER nor SAME can be made to fail."""
    assert not {Verdict.FASTER, Verdict.SAME} & set(MAY_FAIL)


def test_each_loosened_setting_is_named() -> None:
    """A larger threshold or floor, a smaller rate and a lost verdict are each named with old and new value."""
    now = Policy(threshold_percent=5, floor_us=1.5, suite_false_alarm_rate=0.001, fail_on=(Verdict.SLOWER,))
    assert now.list_loosened(Policy().to_record()) == [
        "threshold_percent 2 -> 5",
        "floor_us 0.5 -> 1.5",
        "suite_false_alarm_rate 0.01 -> 0.001",
        "fail_on no longer has ERROR, INCORRECT, SUSPICIOUS",
    ]


def test_tightening_is_no_finding() -> None:
    """A stricter policy, or a stored one that lacks a setting, has nothing to report."""
    tight = Policy(threshold_percent=1, floor_us=0.1, suite_false_alarm_rate=0.05, fail_on=MAY_FAIL)
    assert tight.list_loosened(Policy().to_record()) == []
    assert Policy(threshold_percent=50).list_loosened({}) == []


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        ({"threshold_percent": "two"}, "stored policy threshold_percent is 'two', expected a number"),
        ({"floor_us": None}, "stored policy floor_us is None, expected a number"),
        ({"fail_on": "SLOWER"}, "stored policy fail_on is 'SLOWER', expected a list of verdicts"),
        ({"fail_on": [3]}, r"stored policy fail_on is \[3\], expected a list of verdicts"),
    ],
)
def test_a_stored_policy_of_a_wrong_type_is_refused(stored: dict[str, object], text: str) -> None:
    """What was stored cannot be compared when it is no number or no list of names, and is not taken as equal."""
    with pytest.raises(BaselineError, match=text):
        Policy().list_loosened(stored)


def test_what_is_not_set_is_not_stored() -> None:
    """A tier and a quarantine are in the record where they are set only: policies stored before keep their ids."""
    set_ones = Policy(tier="nightly", quarantine="#12", quarantine_until="2026-02-01").to_record()
    assert set_ones == {
        **Policy().to_record(), "tier": "nightly", "quarantine": "#12", "quarantine_until": "2026-02-01"
    }  # fmt: skip
    assert Policy(tier="pr") == Policy()
    assert "tier" not in Policy(tier="pr").to_record()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"tier": "weekly"}, "policy tier is 'weekly'; known tiers: pr, check, cpu, nightly"),
        ({"quarantine": "#1"}, "policy has quarantine='#1' without until; a quarantine needs both: quarantine="),
        ({"quarantine_until": "2026-02-01"}, "policy has until='2026-02-01' without quarantine; a quarantine needs"),
        ({"quarantine": " ", "quarantine_until": "2026-02-01"}, "policy has quarantine=' '; expected the link"),
        ({"quarantine": "#1", "quarantine_until": "2026-02-30"}, "policy has until='2026-02-30', which is not a date"),
        ({"quarantine": "#1\n", "quarantine_until": "2026-02-01"}, "policy has quarantine='#1\\n'; expected the link"),
        (
            {"quarantine": "x" * 301, "quarantine_until": "2026-02-01"},
            f"policy has quarantine='{'x' * 299}...; expected",
        ),
        ({"quarantine": "a\nb", "quarantine_until": "2026-02-01"}, "policy has quarantine='a\\nb'; expected the link"),
        (
            {"quarantine": "#1", "quarantine_until": "20260201"},
            "policy has until='20260201', which is not a date YYYY-MM-",
        ),
        ({"quarantine": "#1", "quarantine_until": "tomorrow"}, "policy has until='tomorrow', which is not a date"),
    ],
)
def test_a_tier_or_quarantine_that_is_none_is_refused(settings: dict[str, Any], text: str) -> None:
    """An unknown tier, half a quarantine, an empty link and a date that no calendar has are named."""
    with pytest.raises(UsageError) as caught:
        Policy(**settings)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("now", "stored", "said"),
    [
        ({"tier": "nightly"}, {}, ["measured by nightly runs only"]),
        ({"tier": "nightly"}, {"tier": "nightly"}, []),
        ({"tier": "nightly"}, {"tier": "cpu"}, ["measured by nightly runs only"]),
        ({"tier": "cpu"}, {}, ["measured by nightly runs only, and on a CPU"]),
        ({"tier": "cpu"}, {"tier": "cpu"}, []),
        ({"tier": "cpu"}, {"tier": "nightly"}, []),
        ({}, {"tier": "nightly", "quarantine": "#1", "quarantine_until": "2026-02-01"}, []),
        ({"until": "2026-02-01"}, {}, ["quarantined until 2026-02-01: #1"]),
        ({"until": "2026-02-01"}, {"until": "2026-02-01"}, []),
        ({"until": "2026-02-01"}, {"until": "2026-03-01"}, []),
        ({"until": "2026-12-01"}, {"until": "2026-02-01"}, ["quarantine extended 2026-02-01 -> 2026-12-01: #1"]),
    ],
)
def test_exemptions_since_the_baseline_are_named(now: dict[str, str], stored: dict[str, str], said: list[str]) -> None:
    """A case moved to nightly, and a quarantine that began or was extended, let more through; ending them does not."""

    def policy(settings: dict[str, str]) -> Policy:
        until = settings.get("until", settings.get("quarantine_until", ""))
        return Policy(tier=settings.get("tier", ""), quarantine="#1" if until else "", quarantine_until=until)

    assert policy(now).list_loosened(policy(stored).to_record()) == said
