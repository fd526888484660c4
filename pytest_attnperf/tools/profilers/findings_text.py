"""Claims that were checked: what is contradicted, what stays open, and what holds."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_attnperf.records.profiles import Finding
from pytest_attnperf.reports.text.figures import one_line

TEXT_LIMIT = 2000


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    """A line per finding, contradictions first, and a line of counts behind them."""
    wrong = [found for found in findings if found.holds is False]
    open_ = [found for found in findings if found.holds is None]
    right = [found for found in findings if found.holds]
    lines = [_line("CONTRADICTED", found) for found in wrong]
    lines += [_line("OPEN", found) for found in open_]
    lines += [_line("holds", found) for found in right]
    return [*lines, f"{len(wrong)} contradicted, {len(open_)} open, {len(right)} hold"]


def _line(word: str, found: Finding) -> str:
    return one_line(f"{word} {found.rule}: {found.text}", TEXT_LIMIT)
