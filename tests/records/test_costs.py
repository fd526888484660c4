"""What `costs={...}` may hold, and how costs are printed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.costs import BUILT_IN, NO_COSTS, GatedCosts, format_cost, parse_costs


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


def test_costs_are_printed_with_their_unit() -> None:
    """The unit is the end of the name; large numbers of bytes are MiB."""
    shown = [("host_us", 5.4213), ("first_call_ms", 1234.0), ("peak_bytes", 512), ("peak_bytes", 3 * 2**20), ("x", 7)]
    said = [format_cost(name, value) for name, value in shown]
    assert said == ["5.421 us", "1.234 s", "512 bytes", "3 MiB", "7"]
    assert not re.search(r"\d\.0\b", " ".join(said))
