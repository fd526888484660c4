from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from pytest_attnperf.errors import BaselineError, UsageError
from pytest_attnperf.gate.code.code_policy import ALWAYS, BY_POLICY, UNLESS_ACCEPTED, CodePolicy


def test_defaults_fail_what_costs_time_for_sure() -> None:
    """Occupancy and narrower loads fail; more VGPRs, LDS, code and another launch warn; 1 % of growth is nothing."""
    assert CodePolicy().to_record() == {"fail_on": ["occupancy", "wider_loads"], "growth_percent": 1.0}
    assert [kind for kind in BY_POLICY if not CodePolicy().fails_on(kind)] == ["vgprs", "lds", "code_size", "launch"]


@pytest.mark.parametrize("kind", [*ALWAYS, *UNLESS_ACCEPTED])
def test_rules_cannot_be_switched_off(kind: str) -> None:
    """A policy that fails on nothing still fails on what no launch or no reader could use, and on spills."""
    assert CodePolicy(frozenset()).fails_on(kind)


def test_a_record_survives_json() -> None:
    """What is stored and read back equals what was recorded, and loosens nothing."""
    policy = CodePolicy(frozenset({"vgprs", "lds"}), 3)
    stored = msgspec.json.decode(msgspec.json.encode(policy.to_record()))
    assert stored == policy.to_record() == {"fail_on": ["lds", "vgprs"], "growth_percent": 3.0}
    assert policy.list_loosened(stored) == []


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("growth_percent", -1, "code policy growth_percent is -1; allowed: a number from 0 to 1000"),
        ("growth_percent", 1001, "code policy growth_percent is 1001; allowed: a number from 0 to 1000"),
        ("growth_percent", math.nan, "code policy growth_percent is nan; allowed: a number"),
        ("growth_percent", True, "code policy growth_percent is True; allowed: a number"),
        ("growth_percent", "2", "code policy growth_percent is '2'; allowed: a number"),
        ("fail_on", "occupancy", "code policy fail_on is 'occupancy'; allowed: a set of occupancy, wider_loads"),
        ("fail_on", None, "code policy fail_on is None; allowed: a set of occupancy, wider_loads"),
        ("fail_on", {"vgpr"}, "code policy fail_on has the unknown kind 'vgpr'; allowed: occupancy, wider"),
        ("fail_on", [3], "code policy fail_on has the unknown kind 3; allowed: occupancy"),
    ],
)
def test_a_bad_setting_is_named_with_what_is_allowed(field: str, value: object, text: str) -> None:
    """Each field refuses what it cannot mean, naming itself, the value and the allowed range."""
    settings: dict[str, Any] = {field: value}
    with pytest.raises(UsageError) as caught:
        CodePolicy(**settings)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("occupancy, VGPRS,", {"occupancy", "vgprs"}),
        ("", set()),
        ("all", set(BY_POLICY)),
        ("lds,spills,store", {"lds"}),
    ],
)
def test_a_policy_is_read_from_words(text: str, kinds: set[str]) -> None:
    """Kinds are separated by commas; 'all' is all of them; those that fail anyway may be named and change nothing."""
    assert CodePolicy.from_text(text, "2.5") == CodePolicy(frozenset(kinds), 2.5)


@pytest.mark.parametrize(
    ("fail_on", "growth", "text"),
    [
        ("all,speed", "1", "code policy fail_on has the unknown kind 'all'"),
        ("speed", "1", "code policy fail_on has the unknown kind 'speed'"),
        ("", "one", "code policy growth_percent is 'one'; allowed: a number from 0 to 1000"),
        ("", "inf", "code policy growth_percent is inf; allowed"),
    ],
)
def test_bad_words_are_named(fail_on: str, growth: str, text: str) -> None:
    """A word that is no kind, or no number, is a usage error that says so."""
    with pytest.raises(UsageError, match=text):
        CodePolicy.from_text(fail_on, growth)


def test_each_loosened_setting_is_named() -> None:
    """More allowed growth and a kind that no longer fails are each named."""
    now = CodePolicy(frozenset({"vgprs"}), 5)
    assert now.list_loosened(CodePolicy().to_record()) == [
        "growth_percent 1 -> 5",
        "fail_on no longer has occupancy, wider_loads",
    ]


def test_tightening_is_no_finding() -> None:
    """A stricter policy, or a stored one that lacks a setting, has nothing to report."""
    assert CodePolicy(frozenset(BY_POLICY), 0).list_loosened(CodePolicy().to_record()) == []
    assert CodePolicy(frozenset()).list_loosened({}) == []


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        ({"growth_percent": "1"}, "stored code policy growth_percent is '1', expected a number"),
        ({"growth_percent": True}, "stored code policy growth_percent is True, expected a number"),
        ({"fail_on": "lds"}, "stored code policy fail_on is 'lds', expected a list of kinds"),
        ({"fail_on": [1]}, "stored code policy fail_on is [1], expected a list of kinds"),
    ],
)
def test_a_stored_policy_of_wrong_types_is_an_error(stored: dict[str, Any], text: str) -> None:
    """A stored setting that cannot be compared is named rather than passed over."""
    with pytest.raises(BaselineError) as caught:
        CodePolicy().list_loosened(stored)
    assert str(caught.value).startswith(text)
