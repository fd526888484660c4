"""How cases are divided: alike everywhere, longest first, a workload together, unknown ones by their family."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_attnperf.plugin.features.sharding.partition import GRAIN, WeighedCase, divide_cases, estimate_seconds


def case(name: str, milliseconds: int, group: str = "") -> WeighedCase:
    """A case in a group of its own unless one is named."""
    return WeighedCase(name, group or name, milliseconds)


def test_the_longest_come_first() -> None:
    """Each to the part with the least time; within a part the given order stays."""
    cases = [case("a", 3), case("b", 5), case("c", 4), case("d", 2), case("e", 2)]
    assert divide_cases(cases, 2) == (("b", "d", "e"), ("a", "c"))
    assert divide_cases(cases, 1) == (("a", "b", "c", "d", "e"),)


def test_more_parts_than_cases_leave_some_empty() -> None:
    """And no part, or another number of speeds, is an error."""
    assert divide_cases([case("a", 1)], 3) == (("a",), (), ())
    with pytest.raises(ValueError, match="into 0 parts"):
        divide_cases([], 0)
    with pytest.raises(ValueError, match="into 2 parts by 1 speeds"):
        divide_cases([], 2, [1.0])


def test_a_workload_stays_together_unless_it_is_long() -> None:
    """Its backends share a reference; a group above an eighth of a part is divided."""
    small = [case(f"w{number}-{backend}", 10, f"w{number}") for number in range(40) for backend in "ab"]
    parts = divide_cases(small, 2)
    assert all({name[:-1] for name in parts[0]}.isdisjoint({name[:-1] for name in part}) for part in parts[1:])
    large = [case(f"w-{number}", 1000, "w") for number in range(4)]
    assert sorted(map(len, divide_cases([*small, *large], 4))) != sorted(map(len, divide_cases(small, 4)))
    assert all(any(name.startswith("w-") for name in part) for part in divide_cases([*small, *large], 4))


def test_a_known_slow_node_gets_less() -> None:
    """In proportion to its speed."""
    parts = divide_cases([case(str(number), 10) for number in range(90)], 2, [1.0, 2.0])
    assert list(map(len, parts)) == [30, 60]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 10_000), max_size=60), st.integers(1, 12), st.integers(1, 5))
def test_every_case_is_in_one_part(times: list[int], count: int, backends: int) -> None:
    """Exactly once, in the given order, and no part exceeds the mean by more than a group and a single case may."""
    cases = [case(f"c{number:02}", time, f"w{number // backends}") for number, time in enumerate(times)]
    parts = divide_cases(cases, count)
    assert parts == divide_cases(list(cases), count)
    assert len(parts) == count
    assert sorted(name for part in parts for name in part) == [one.name for one in cases]
    assert all(list(part) == sorted(part) for part in parts)
    took = {one.name: max(1, one.milliseconds) for one in cases}
    mean = sum(took.values()) / count
    longest = max((sum(took[name] for name in part) for part in parts), default=0)
    assert longest <= mean + max(mean / GRAIN, *took.values(), 0)


def test_unknown_cases_take_the_median_of_their_family() -> None:
    """Else that of all; without any stored seconds all are alike."""
    stored = {"s/a/prefill-1": 2.0, "s/b/prefill-1": 4.0, "s/a/decode-1": 9.0}
    names = ["s/a/prefill-1", "other/c/prefill-9", "s/c/gemm-1", "s/gate/test_mine"]
    assert estimate_seconds(names, stored) == [2.0, 3.0, 4.0, 4.0]
    assert estimate_seconds(names, {}) == [1.0] * 4


def test_parts_of_a_long_list_are_alike_in_time() -> None:
    """With 2,000 drawn cases no part of 64 takes 2 % more than the mean."""
    draw = random.Random(1)
    drawn = [round(1000 * draw.lognormvariate(1.5, 0.8)) for _ in range(2000)]
    cases = [case(str(number), time, f"w{number // 5}") for number, time in enumerate(drawn)]
    took = {one.name: one.milliseconds for one in cases}
    loads = [sum(took[name] for name in part) for part in divide_cases(cases, 64)]
    assert max(loads) * 64 <= 1.02 * sum(loads)
