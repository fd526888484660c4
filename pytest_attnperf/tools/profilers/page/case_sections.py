"""Profiled cases of a run as sections of a page: what binds each, and the kernels of those shown in detail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_attnperf.records.profiles import CaseProfile, ProfileSummary
from pytest_attnperf.reports.html.sections import Section
from pytest_attnperf.reports.html.text_tables import convert_table
from pytest_attnperf.reports.run.profile_cases import LEGEND, bound_table, detail_lines, reason_lines
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import CaseResult
from pytest_attnperf.tools.profilers.page.bound_figures import BoundWork
from pytest_attnperf.tools.profilers.page.family_colours import choose_colours
from pytest_attnperf.tools.profilers.page.profile_sections import (
    TABLE_KERNELS,
    build_kernel_section,
    build_time_figures,
    make_bound_sections,
)
from pytest_attnperf.tools.profilers.profile_text import profile_tables

NAME_LIMIT = 120
LEAST_KERNELS = 4
"""Kernels of a case from which a treemap shows more than bars do."""

MOST_DETAILED = 12
"""Most cases with charts of their own."""


def build_case_sections(
    found: Sequence[tuple[CaseResult, CaseProfile]], detailed: Sequence[tuple[CaseResult, ProfileSummary]], device: str
) -> list[Section]:
    """Returns the sections of profiled cases: what binds each on `device`, and the time of the kernels of those in
    `detailed`, at most MOST_DETAILED of them."""
    works = [BoundWork(case.key.entry, profile.bound) for case, profile in found]
    reasons = [line for pair in found for line in reason_lines(*pair)]
    table = convert_table(bound_table(found), "what binds each case")
    bounds, evidence = make_bound_sections(works, (table,), reasons)
    sections = [replace(bounds, title="What binds each case", lead=(f"device: {device}", LEGEND)), evidence]
    profiles = {case.key: profile for case, profile in found}
    for number, (case, summary) in enumerate(detailed[:MOST_DETAILED], 1):
        sections += _build_case(case, profiles[case.key], summary, number)
    return sections


def _build_case(case: CaseResult, profile: CaseProfile, summary: ProfileSummary, number: int) -> list[Section]:
    colours = choose_colours(summary.kernels)
    tables = [convert_table(table) for table in profile_tables(summary, shown=TABLE_KERNELS)]
    figures = build_time_figures(summary, colours) if len(summary.kernels) >= LEAST_KERNELS else ()
    name = one_line(case.key.entry, NAME_LIMIT)
    lead = tuple(detail_lines(case, profile))
    time = Section(f"case-{number}", name, lead, figures, tuple(tables[:1]), f"Case {number}")
    bars = build_kernel_section(summary, colours, ())
    return [replace(time, figures=(*figures, *bars[0].figures) if bars else figures, tables=tuple(tables), folded=True)]
