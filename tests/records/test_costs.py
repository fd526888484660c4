"""What `costs={...}` may hold, and how costs are printed."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.costs import (
    BUILT_IN,
    NO_COSTS,
    CostSettings,
    GatedCosts,
    format_costs,
    parse_cost_text,
    parse_costs,
)


def count(result: object) -> float:
    """A cost of a test's own."""
    return float(str(result))


def test_costs_are_a_percentage_each_or_a_function_with_one() -> None:
    """Known costs have a percentage, a test's own a function beside it; None gates nothing."""
    parsed = parse_costs({"peak_bytes": 0, "host_us": 20.5, "pages": (count, 3)}, "here")
    assert parsed == GatedCosts({"peak_bytes": 0.0, "host_us": 20.5, "pages": 3.0}, {"pages": count})
    assert parse_costs(None, "here") is NO_COSTS
    assert all(parse_costs({name: 1}, "here").limits == {name: 1.0} for name in BUILT_IN)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("peak_bytes", r"here: costs='peak_bytes' is no dict; give the growth in percent .*costs=\{\"peak_bytes\": 0"),
        (["peak_bytes"], r"is no dict"),
        ({"peak_byte": 0}, r"costs has 'peak_byte', which is not measured; did you mean 'peak_bytes'\? measured are"),
        (
            {"pages": 0},
            r"costs has 'pages', which is not measured; measured are host_us, .*\{\"pages\": \(func",
        ),
        ({"Pages read": (count, 0)}, r"a cost is named by lower-case letters"),
        ({7: 0}, r"costs has 7; a cost is named by"),
        ({"host_us": (count, 5)}, r"costs has a function for 'host_us', which is measured without one"),
        ({"pages": ("count", 5)}, r"costs\['pages'\] is \('count', percent\); its first entry must be a function"),
        ({"host_us": "5 %"}, r"costs\['host_us'\] is '5 %'; expected the growth in percent that is allowed, from 0 to"),
        ({"host_us": -1}, r"is -1; expected"),
        ({"host_us": True}, r"is True; expected"),
        ({"host_us": float("nan")}, r"is nan; expected"),
        ({"host_us": 2000}, r"is 2000; expected .* from 0 to 1000"),
    ],
)
def test_other_costs_are_named_with_what_is_expected(given: Any, said: str) -> None:
    """A wrong type, name, function or percentage is one sentence with the value seen and what to write."""
    with pytest.raises(UsageError, match=said) as caught:
        parse_costs(given, "here")
    assert "\n" not in str(caught.value)


def test_the_costs_of_a_call_replace_those_of_its_marker() -> None:
    """Both count; where both name a cost, the call's percentage and function do."""
    marker = GatedCosts({"host_us": 5.0, "pages": 0.0}, {"pages": count})
    both = marker.merge_with(GatedCosts({"pages": 9.0, "peak_bytes": 0.0}, {"pages": float}))
    assert both == GatedCosts({"host_us": 5.0, "pages": 9.0, "peak_bytes": 0.0}, {"pages": float})
    assert marker.merge_with(NO_COSTS) == marker


def test_costs_are_printed_in_one_unit() -> None:
    """The unit is the end of the name; values that are compared share it, bytes in MiB if one is that large."""
    assert format_costs("host_us", [5.4213]) == ["5.421 us"]
    assert format_costs("first_call_ms", [1234.0, 900.0]) == ["1.234 s", "0.9000 s"]
    assert format_costs("peak_bytes", [512, 1000]) == ["512 bytes", "1000 bytes"]
    assert format_costs("peak_bytes", [2**18, 3 * 2**20]) == ["0.25 MiB", "3 MiB"]
    assert format_costs("pages", [7, 16448]) == ["7", "16448"]


def test_costs_of_a_text() -> None:
    """Percentages with or without a sign, `off` for a cost that is not gated, nothing for no costs."""
    assert parse_cost_text("host_us=20, peak_bytes=0%,allocations=off", "here") == {
        "host_us": 20.0, "peak_bytes": 0.0, "allocations": None,
    }  # fmt: skip
    assert parse_cost_text("", "here") == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("host_us", "here: 'host_us' is no COST=PERCENT; give e.g. host_us=20,peak_bytes=0"),
        ("host_u=5", "costs has 'host_u', which is not measured; did you mean 'host_us'"),
        ("pages=5", "costs has 'pages', which is not measured; measured are"),
        ("host_us=fast", r"costs\['host_us'\] is 'fast'; expected the growth in percent"),
        ("host_us=nan", r"is nan; expected"),
        ("host_us=-1", r"is -1.0; expected"),
        ("host_us=1,host_us=2", "costs names 'host_us' twice; leave one of them"),
    ],
)
def test_other_texts_are_named(text: str, said: str) -> None:
    """What is no cost with a percentage is one sentence with what to write."""
    with pytest.raises(UsageError, match=said) as caught:
        parse_cost_text(text, "here")
    assert "\n" not in str(caught.value)


def test_settings_of_a_run_lie_below_and_above_those_of_a_test() -> None:
    """A test's costs replace the project's, cost by cost, and may take one out; an override replaces both."""
    project = {"host_us": 20.0, "peak_bytes": 5.0}
    given = parse_costs({"peak_bytes": 1, "host_us": None, "pages": (count, 3)}, "here")
    assert CostSettings(project).apply_to(NO_COSTS).limits == project
    assert CostSettings(project).apply_to(given).limits == {"peak_bytes": 1.0, "pages": 3.0}
    over = CostSettings(project, {"host_us": 50.0, "peak_bytes": None}).apply_to(given)
    assert (over.limits, over.metrics) == ({"host_us": 50.0, "pages": 3.0}, {"pages": count})
