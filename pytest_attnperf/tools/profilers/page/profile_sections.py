"""One profile as sections of a page: where the time goes, when, what binds kernels, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pytest_attnperf.records.profiles import KernelTime, ProfileFinding, ProfileSummary
from pytest_attnperf.records.rooflines import KernelBound
from pytest_attnperf.records.time_units import format_ns
from pytest_attnperf.reports.html.sections import Figure, PageTable, Section, TableHead
from pytest_attnperf.reports.html.share_bars import ShareBar, build_share_bars
from pytest_attnperf.reports.html.text_tables import convert_table
from pytest_attnperf.reports.run.profile_cases import kernel_bound_lines, kernel_bound_table
from pytest_attnperf.reports.run.profile_figures import cut_middle, format_percent, format_waves, tell_apart
from pytest_attnperf.reports.text import wide_tables
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.tools.profilers.analysed_profile import AnalysedProfile
from pytest_attnperf.tools.profilers.devices import choose_spec
from pytest_attnperf.tools.profilers.kernel_columns import NAMELESS
from pytest_attnperf.tools.profilers.page.bound_figures import BoundWork, build_bound_bars, build_roofline
from pytest_attnperf.tools.profilers.page.family_colours import FamilyColours, choose_colours
from pytest_attnperf.tools.profilers.page.time_lanes import cut_window
from pytest_attnperf.tools.profilers.page.time_strip import build_lane_table, build_pass_table, build_time_strip
from pytest_attnperf.tools.profilers.page.treemap import build_treemap
from pytest_attnperf.tools.profilers.profile_summary import analyse_profile
from pytest_attnperf.tools.profilers.profile_text import LEGEND, conclusion_lines, profile_lines, profile_tables
from pytest_attnperf.tools.profilers.reading import read_profile

TABLE_KERNELS = 200
"""Most kernels of the page's tables."""

BARS = 15
NAME_LIMIT = 50
VERDICTS = ((False, "contradicted"), (None, "open"), (True, "holds"))
"""`ProfileFinding.holds` -> its word, in the order of the table."""

TEXT_LIMIT = 2000

OPEN_TRACE = (
    "For every dispatch, write a trace with attnperf profile PATH --trace trace.json.gz and open it at "
    "ui.perfetto.dev with 'Open trace file'; it stays on your machine."
)


def build_sections(analysed: AnalysedProfile, bounds: Sequence[KernelBound] = ()) -> list[Section]:
    """Returns the sections of one profile: time, time line, kernels, what binds those in `bounds`, and conclusions.
    Sections without content are left out."""
    summary = analysed.summary
    colours = choose_colours((summary.in_passes or summary).kernels)
    tables = profile_tables(summary, shown=TABLE_KERNELS)
    sections = [_make_time_section(summary, colours, tables[:1] if summary.families else [])]
    sections += _make_strip_section(analysed, colours)
    sections += build_kernel_section(summary, colours, tables[1:] if summary.families else tables)
    sections += build_bound_section(bounds)
    lines = conclusion_lines(summary)
    sections += [Section("conclusions", "Conclusions", tuple(lines))] if lines else []
    return [*sections, *make_notes_section(tables, LEGEND)]


def make_notes_section(tables: Sequence[wide_tables.Table], legend: Sequence[str]) -> list[Section]:
    """Returns a section on how to read the tables: `legend` and the notes of each; [] without any."""
    notes = [f"{table.title.partition(' (')[0]}: {note}" for table in tables for note in table.notes]
    lines = tuple(dict.fromkeys((*legend, *notes)))
    return [Section("notes", "How to read the tables", lines, short="Notes")] if lines else []


def read_sections(path: Path, *, run: str = "", device: str = "") -> list[Section]:
    """Returns the sections of the profile at `path`, a file or a folder. Raises ProfileError if nothing can be used,
    UsageError for an unknown device."""
    profile = read_profile(path, run=run)
    return build_sections(analyse_profile(profile, device=choose_spec(device, profile.agents)))


def build_time_figures(summary: ProfileSummary, colours: FamilyColours, prefix: str = "") -> tuple[Figure, ...]:
    """Returns the treemap of a summary's kernels, of those in the passes if these are known; () without times."""
    part = summary.in_passes or summary
    where = " in the passes" if part.is_part else ""
    figure = build_treemap(part.kernels, colours, f"{prefix}GPU time{where} by family and kernel")
    return (figure,) if figure is not None else ()


def _make_time_section(summary: ProfileSummary, colours: FamilyColours, tables: Sequence[wide_tables.Table]) -> Section:
    lead = tuple(profile_lines(summary))
    figures = build_time_figures(summary, colours)
    shown = tuple(convert_table(table) for table in tables)
    return Section("time", "Where the time goes", lead, figures, shown, "Time")


def _make_strip_section(analysed: AnalysedProfile, colours: FamilyColours) -> list[Section]:
    window = cut_window(analysed)
    if window is None:
        return []
    figure = build_time_strip(analysed, window, colours)
    tables = [table for table in (build_pass_table(analysed), build_lane_table(window)) if table is not None]
    title = "When kernels run"
    return [Section("line", title, (OPEN_TRACE,), (figure,), tuple(tables), "Time line", folded=True)]


def build_kernel_section(
    summary: ProfileSummary, colours: FamilyColours, tables: Sequence[wide_tables.Table]
) -> list[Section]:
    """Returns a section of the longest kernels as bars, with `tables`; [] without kernels and tables."""
    if not summary.kernels and not tables:
        return []
    figure = build_share_bars(
        f"The {min(BARS, len(summary.kernels))} longest kernels" if len(summary.kernels) > 1 else "The only kernel",
        _list_kernel_bars(summary.kernels, colours),
        f"Share of all {format_ns(summary.total_ns)} of GPU time. Coloured by family.",
    )
    shown = tuple(convert_table(table) for table in tables)
    return [Section("kernel-times", "Kernels", (), (figure,) if figure else (), shown, folded=True)]


def _list_kernel_bars(kernels: Sequence[KernelTime], colours: FamilyColours) -> list[ShareBar]:
    shown = [kernel for kernel in kernels[:BARS] if kernel.spread.total_ns]
    names = tell_apart((kernel.name for kernel in shown), NAME_LIMIT)
    return [_make_kernel_bar(kernel, names[kernel.name] or NAMELESS, colours) for kernel in shown]


def _make_kernel_bar(kernel: KernelTime, name: str, colours: FamilyColours) -> ShareBar:
    group = colours.group_of(kernel.family)
    waves = next((format_waves(one.occupancy) for one in kernel.shapes if one.occupancy is not None), "")
    spread = kernel.steady or kernel.spread
    more = (
        ("family", cut_middle(one_line(kernel.family), NAME_LIMIT)),
        ("time", format_ns(kernel.spread.total_ns)),
        ("calls", f"{kernel.spread.calls:,}"),
        ("median", format_ns(spread.median_ns)),
        ("waves per SIMD", waves),
    )
    name = name if kernel.kind == "kernel" else f"{name} ({kernel.kind})"
    return ShareBar(name, kernel.share, format_percent(kernel.share), colours.colour_of(group), more)


def build_bound_section(bounds: Sequence[KernelBound]) -> list[Section]:
    """Returns a section on what binds kernels whose work is known: bars, roofline, table and reasons; [] without."""
    if not bounds:
        return []
    works = [BoundWork(found.name, found.verdict) for found in bounds]
    return make_bound_sections(works, (convert_table(kernel_bound_table(bounds)),), kernel_bound_lines(bounds))


def make_bound_sections(
    works: Sequence[BoundWork], tables: tuple[PageTable, ...], lines: Iterable[str]
) -> list[Section]:
    """Returns the section on what binds `works`, with their charts and `tables`, and one of `lines` of evidence."""
    figures = tuple(figure for figure in (build_bound_bars(works), build_roofline(works)) if figure is not None)
    bounds = Section("bounds", "What binds the kernels", (), figures, tables, "Bounds")
    return [bounds, Section("evidence", "Why", tuple(lines))]


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
    tables = (PageTable("every claim and its verdict", heads, rows),) if rows else ()
    return [Section("claims", "Claims", lead, tables=tables)]
