from __future__ import annotations

from pytest_attnperf.records.profiles import KernelTime, Spread
from pytest_attnperf.reports.html.charts import COLOURS
from pytest_attnperf.tools.profilers.page.family_colours import REST, choose_colours


def kernel(family: str, ns: int) -> KernelTime:
    """A kernel of a family."""
    return KernelTime(f"k{family}", family, "kernel", Spread(1, ns), 0.0)


def test_the_longest_families_have_colours() -> None:
    """At most eight colours: seven families of their own by time, all others grey, and 'other' always."""
    kernels = [kernel(f"f{number}", 100 - number) for number in range(10)] + [kernel("other", 10**6)]
    colours = choose_colours(kernels)
    assert colours.families == ("f0", "f1", "f2", "f3", "f4", "f5", "f6")
    assert colours.groups == [*colours.families, REST]
    assert len(set(colours.colours)) == 8
    assert {colours.group_of(name) for name in ("f7", "other", "unheard")} == {REST}
    assert colours.colour_of(REST) == COLOURS[-1]


def test_families_without_time_or_alike_have_none() -> None:
    """A family of 0 ns needs no colour; two that print alike share one."""
    same = "x" * 100
    colours = choose_colours([kernel("quick", 0), kernel(f"{same}1", 3), kernel(f"{same}2", 2)])
    assert colours.families == (f"{same}2",) or colours.families == (f"{same}1",)
    assert choose_colours([]).groups == [REST]
