"""The estimate of key loops as sections of a page: what is busy, and which instructions are slow."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_attnperf.codeobject.issue_model import ESTIMATED
from pytest_attnperf.records.code import KernelCode, LoopEstimate
from pytest_attnperf.reports.html.charts import COLOURS
from pytest_attnperf.reports.html.sections import PageTable, Section, TableHead
from pytest_attnperf.reports.html.share_bars import ShareBar, build_share_bars
from pytest_attnperf.reports.run.profile_figures import cut_middle
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.tools.occupancy.cycles_text import (
    CONFLICTS,
    busy_shares,
    describe_limit,
    describe_loop,
    explain_missing,
    format_place,
    list_counts,
)

TITLE_LIMIT, TEXT_LIMIT = 120, 80


def build_cycle_sections(codes: Sequence[KernelCode], keys: int = 0) -> list[Section]:
    """Returns a section per kernel: its key loop's estimate, or why there is none. `keys` are those of an iteration, 0
    for those that a kernel declares."""
    sections = []
    for number, code in enumerate(codes, 1):
        name, title = f"cycles{number}", cut_middle(one_line(code.name, 4 * TITLE_LIMIT), TITLE_LIMIT)
        short = f"Cycles {number}" if len(codes) > 1 else "Cycles"
        if code.key_loop is None:
            reason = f"no estimate: {explain_missing(code)}"
            sections.append(Section(name, f"Cycles of {title}", (reason,), short=short))
        else:
            sections.append(_make_section(code, code.key_loop, keys or code.key_loop.keys, name, title, short))
    return sections


def _make_section(code: KernelCode, loop: LoopEstimate, keys: int, name: str, title: str, short: str) -> Section:
    bars = [
        ShareBar(unit, share, f"{100 * share:.0f} %", COLOURS[number])
        for number, (unit, share) in enumerate(busy_shares(loop).items())
    ]
    figure = build_share_bars("How busy each unit is in the key loop", bars, f"{describe_limit(loop)}.", 1.2)
    lead = (*describe_loop(code, loop, keys), f"({ESTIMATED})", CONFLICTS)
    tables = (_make_count_table(loop, keys), _make_heaviest_table(loop))
    return Section(name, f"Cycles of {title}", lead, (figure,) if figure else (), tables, short)


def _make_count_table(loop: LoopEstimate, keys: int) -> PageTable:
    heads, rows = list_counts(loop, keys)
    return PageTable(
        "instructions, cycles and bytes",
        tuple(TableHead(text, bool(place)) for place, text in enumerate(heads)),
        tuple(rows),
    )


def _make_heaviest_table(loop: LoopEstimate) -> PageTable:
    numbers = (TableHead(text, True) for text in ("wave's cycles", "share", "count"))
    heads = (TableHead("instruction, with the wait before it"), *numbers, TableHead("line"), TableHead("source"))
    rows = tuple(
        (
            one.mnemonic,
            f"{one.cycles:,.0f}",
            f"{100 * one.cycles / (loop.cycles * loop.waves):.0f} %",
            f"{one.count}",
            format_place(one.file, one.line),
            one_line(one.text, TEXT_LIMIT),
        )
        for one in loop.heaviest
    )
    kept = len(heads) if any(one.line for one in loop.heaviest) else len(heads) - 2
    return PageTable("the heaviest instructions of a wave", heads[:kept], tuple(row[:kept] for row in rows))
