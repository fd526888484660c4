"""Colours of kernel families: the same in every chart of a page, at most eight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.records.profiles import KernelTime
from pytest_attnperf.reports.html.charts import COLOURS
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.tools.profilers.kernel_families import OTHER

REST = "other families"
"""Name of the group of all families without a colour of their own."""

NAME_LIMIT = 40


@dataclass(frozen=True)
class FamilyColours:
    """Families with a colour of their own, the longest first; all others are in the group `REST`, which is grey."""

    families: tuple[str, ...]

    def group_of(self, family: str) -> str:
        """Returns the name of a family's group: its own on one line, or `REST`."""
        return one_line(family, NAME_LIMIT) if family in self.families else REST

    def colour_of(self, group: str) -> str:
        """Returns a group's colour."""
        return dict(zip(self.groups, self.colours, strict=True))[group]

    @property
    def groups(self) -> list[str]:
        """Names of all groups, `REST` last, for a chart's scale."""
        return [*(one_line(family, NAME_LIMIT) for family in self.families), REST]

    @property
    def colours(self) -> list[str]:
        """Colours of `groups`, in their order."""
        return [*COLOURS[: len(self.families)], COLOURS[-1]]


def choose_colours(kernels: Sequence[KernelTime]) -> FamilyColours:
    """Returns colours for the families with the most time of these kernels; none for 'other' and for no time."""
    totals: dict[str, int] = {}
    for kernel in kernels:
        if kernel.family != OTHER.name and kernel.spread.total_ns:
            totals[kernel.family] = totals.get(kernel.family, 0) + kernel.spread.total_ns
    longest = sorted(totals, key=lambda family: (-totals[family], family))
    names: dict[str, str] = {}
    for family in longest:
        names.setdefault(one_line(family, NAME_LIMIT), family)  # two that look alike cannot share a legend
    return FamilyColours(tuple(list(names.values())[: len(COLOURS) - 1]))
