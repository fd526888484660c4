from __future__ import annotations

import pytest

from tests.tools.profilers.claims.documents import found_in


@pytest.mark.parametrize(
    ("share", "alone", "overall", "holds"),
    [
        ("50%", None, "100%", True),
        ("50%", None, "50%", False),
        ("50%", "100%", "33%", True),
        ("77.6%", "10-20%", "7.6-14.8%", True),
        ("77.6%", "10-20%", "10-20%", False),
        ("20%", "-5%", "-1%", True),
        ("100%", "10%", "10%", None),
    ],
)
def test_gain_of_a_part_is_amdahls(share: str, alone: str | None, overall: str, holds: bool | None) -> None:
    """1 / (1 - share + share / (1 + gain)) - 1, or the same share of the time saved, at both ends of a range."""
    speedup = {"said": "gain", "share": share, "overall": overall} | ({"alone": alone} if alone else {})
    (found,) = found_in(speedups=[speedup])
    assert found.holds is holds


TABLE = {
    "rows": [
        {"name": "GEMM", "time": "80.0 ms", "percent": "80.0%"},
        {"name": "copies", "time": "20.0 ms", "percent": "20.0%"},
        {"name": "bare", "time": "0.0 ms"},
    ]
}


@pytest.mark.parametrize(
    ("recommendation", "holds", "text"),
    [
        ({"on": "copies", "overall": "30-40%"}, False, "copies is 20.0% of the time: 25% overall at most"),
        ({"on": "copies", "overall": "5-10%"}, None, "nothing was measured that supports it"),
        (
            {"on": "copies", "overall": "5-10%", "evidence": "a run without them"},
            True,
            "evidence as given: a run without",
        ),
        ({"on": "GEMM", "alone": "10-20%"}, None, "10-20% on it are 7.84% to 15.4% overall"),
        ({"on": "GEMM", "alone": "-100%"}, None, "-100% on it are -100% overall"),
        ({"on": "bare", "overall": "5%"}, None, "the table has no share of 'bare'"),
        ({"on": "absent", "overall": "5%"}, None, "the table has no share of 'absent'"),
        ({"overall": "5%"}, None, "nothing was measured that supports it"),
    ],
)
def test_promise_is_held_against_its_share(recommendation: dict[str, str], holds: bool | None, text: str) -> None:
    """Beyond what a share of the time can give it is contradicted, and without a measurement it stays open."""
    found = found_in(table=TABLE, recommendations=[{"said": "do it", **recommendation}])
    finding = next(one for one in found if one.rule == "gain promised")
    assert finding.holds is holds
    assert text in finding.text


def test_expectation_with_counters_is_open_for_want_of_values() -> None:
    """A counter that was read is named; its value is not in the document."""
    claim = {"said": "90%+ hit rate", "what": "cache hit rate", "value": "90%+", "counters": ["GL2C_HIT"]}
    (found,) = found_in(expectations=[claim])
    assert (found.holds, found.text) == (None, "90%+ hit rate: based on GL2C_HIT, whose values are not given")


def test_sizes_in_the_right_unit_hold() -> None:
    """Two fp16 tiles of 64 x 256 and 32 x 256 are 48 KB."""
    size = {"said": "48 KB", "tiles": [[64, 256], [32, 256]], "dtype": "f16", "size": "48 KB"}
    (found,) = found_in(sizes=[size])
    assert found.holds is True


@pytest.mark.parametrize(
    ("percents", "holds", "text"),
    [
        (["60.0%", "50.0%"], False, "more than 100%, beyond the rounding of 2 figures"),
        (["60.0%", "30.0%"], None, "less than 100%; are rows left out?"),
    ],
)
def test_percentages_that_do_not_add_up(percents: list[str], holds: bool | None, text: str) -> None:
    """More than 100 % is wrong, less may be rows that are not shown."""
    rows = [{"name": f"{number}", "time": "1.0 ms", "percent": one} for number, one in enumerate(percents)]
    finding = next(one for one in found_in(table={"rows": rows}) if one.rule == "sum of percentages")
    assert finding.holds is holds
    assert text in finding.text


def test_nature_of_members_may_be_said() -> None:
    """A nature that the document gives counts before the one that a name suggests."""
    row = {
        "name": "copies",
        "time": "1.0 ms",
        "nature": "copy",
        "members": [{"name": "gemm", "calls": 1, "nature": "copy"}],
    }
    assert [one.holds for one in found_in(table={"rows": [row]}) if one.rule == "nature of copies"] == [True]


def test_empty_table_claims_nothing() -> None:
    """A table without rows gives no finding."""
    assert found_in(table={"rows": []}) == []


def test_bottom_that_was_rounded_to_zero_gives_a_least_ratio() -> None:
    """0.0 ms is anything down to nothing, so that only the least ratio is known."""
    ratio = {"said": "50x longer", "top": "2.0 ms", "bottom": "0.0 ms", "ratio": "50x"}
    (found,) = found_in(ratios=[ratio])
    assert found.holds is True
    assert "2.0 ms / 0.0 ms is at least 39" in found.text
