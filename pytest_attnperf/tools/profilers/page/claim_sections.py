"""Checked claims of a report as a section of a page: a table with the verdict on each."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_attnperf.records.profiles import ProfileFinding
from pytest_attnperf.reports.html.sections import Section, Table, TableHead
from pytest_attnperf.reports.text.figures import one_line

VERDICTS = ((False, "contradicted"), (None, "open"), (True, "holds"))
"""`ProfileFinding.holds` -> its word, in the order of the table."""

TEXT_LIMIT = 2000


def build_claim_sections(findings: Sequence[ProfileFinding], source: str) -> list[Section]:
    """Returns a section with a table of the findings on the claims of `source`, contradictions first."""
    counts = [f"{sum(found.holds is holds for found in findings)} {word}" for holds, word in VERDICTS]
    lead = (f"claims: {one_line(source, TEXT_LIMIT)}", ", ".join(counts))
    heads = (TableHead("claim"), TableHead("verdict"), TableHead("figures"))
    rows = tuple(
        tuple(one_line(text, TEXT_LIMIT) for text in (found.rule, word, found.text))
        for holds, word in VERDICTS
        for found in findings
        if found.holds is holds
    )
    tables = (Table("every claim and its verdict", heads, rows),) if rows else ()
    return [Section("claims", "Claims", lead, tables=tables)]
