from __future__ import annotations

import re

import pytest

from pytest_attnperf.tools.profilers.kernel_families import MAX_REPEATS, find_pattern_risk


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+", "(a|b)*", "(?:a|ab)+c", "((a+)?)*", "(?P<x>a*){2,}", "(a+){9}", "(?:(?:x|y)z)+", "(?=(a+))*", "(?i:a+)*"],
)
def test_repeat_of_repeats_is_risky(pattern: str) -> None:
    """A repeat around a group with a repeat or alternatives is found, however the group is written."""
    re.compile(pattern)
    assert "repeats a group" in find_pattern_risk(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "a+b*",
        r"\(a+\)+",
        "[(+]+",
        "[]|*]+",
        "(?:copy|fill)?Buffer",
        "(?<!x)a|b",
        "(ab)+",
        r"a{2}(?:b|c)",
        r"(\w+), (?!\1)",
    ],
)
def test_plain_patterns_are_not(pattern: str) -> None:
    """Repeats of characters, classes and plain groups, and alternatives without a repeat, are taken."""
    re.compile(pattern)
    assert find_pattern_risk(pattern) == ""


def test_many_repeats_are_risky() -> None:
    """More unbounded repeats than allowed cost a high power of a name's length."""
    assert find_pattern_risk(".*x" * MAX_REPEATS) == ""
    assert find_pattern_risk(".*x" * (MAX_REPEATS + 1)) == "4 unbounded repeats, at most 3"
