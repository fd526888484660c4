"""A profile, or profiled cases of a run, as sections of a page: where the time goes, when, and what binds kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_attnperf.records.profiles import CaseProfile, KernelTime, ProfileFinding, ProfileSummary
from pytest_attnperf.records.rooflines import BoundClass, BoundVerdict, Ceiling, KernelBound
from pytest_attnperf.records.time_units import format_ns, format_time
from pytest_attnperf.reports.html import share_bars
from pytest_attnperf.reports.html.charts import COLOURS, Spec, make_base
from pytest_attnperf.reports.html.embedding import round_figure
from pytest_attnperf.reports.html.roofline import ceiling_lines
from pytest_attnperf.reports.html.sections import Figure, PageTable, Section, TableHead
from pytest_attnperf.reports.html.share_bars import ShareBar, build_share_bars
from pytest_attnperf.reports.html.text_tables import convert_table
from pytest_attnperf.reports.run import profile_cases
from pytest_attnperf.reports.run.profile_figures import cut_middle, format_percent, format_waves, tell_apart
from pytest_attnperf.reports.text import wide_tables
from pytest_attnperf.reports.text.figures import format_rate, one_line
from pytest_attnperf.results import CaseResult
from pytest_attnperf.tools.profilers.analysed_profile import AnalysedProfile
from pytest_attnperf.tools.profilers.devices import choose_spec
from pytest_attnperf.tools.profilers.kernel_columns import NAMELESS
from pytest_attnperf.tools.profilers.page.family_colours import FamilyColours, choose_colours
from pytest_attnperf.tools.profilers.page.time_lanes import cut_window
from pytest_attnperf.tools.profilers.page.time_strip import build_lane_table, build_pass_table, build_time_strip
from pytest_attnperf.tools.profilers.page.treemap import build_treemap
from pytest_attnperf.tools.profilers.profile_summary import analyse_profile
from pytest_attnperf.tools.profilers.profile_text import LEGEND, conclusion_lines, profile_lines, profile_tables
from pytest_attnperf.tools.profilers.reading import read_profile

CLASS_COLOURS = dict(
    zip(BoundClass, (COLOURS[0], COLOURS[1], COLOURS[2], COLOURS[3], COLOURS[4], COLOURS[6]), strict=True)
)
CLASS_SHAPES = dict(
    zip(BoundClass, ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross"), strict=True)
)
NAME_LIMIT = 50
TERA = 1e12
MOST_SHOWN = 60


@dataclass(frozen=True)
class BoundWork:
    """Kernels or a case, by name, and what binds them; None if that is not known."""

    name: str
    verdict: BoundVerdict | None


def build_bound_bars(works: Sequence[BoundWork]) -> Figure | None:
    """Returns bars of the share that each work reaches of its own roof, coloured by what binds it; None if no share is
    known."""
    bars = []
    for number, work in enumerate(works[:MOST_SHOWN], 1):
        point = work.verdict.point if work.verdict is not None else None
        if work.verdict is None or point is None or point.share is None:
            continue
        bound = work.verdict.bound
        more = (
            ("bound by", bound.value),
            ("of its roof", format_percent(point.share)),
            ("roof", one_line(point.roof)),
            ("time", format_time(point.time_us)),
        )
        label = f"{format_percent(point.share)}, {_name_class(bound)}"
        bars.append(ShareBar(_number_name(number, work.name), point.share, label, CLASS_COLOURS[bound], more))
    longest = max((bar.share for bar in bars), default=0.0)
    caption = "Share of the roof: the least time by useful FLOPs and compulsory bytes over the time."
    return build_share_bars("Share that each reaches of its own roof", bars, caption, max(1.0, longest) * 1.45)


def build_roofline(works: Sequence[BoundWork]) -> Figure | None:
    """Returns the roofline with a numbered point per work; None if none has FLOPs, bytes and a time."""
    points, ceilings, xs = [], dict[Ceiling, None](), []
    for number, work in enumerate(works[:MOST_SHOWN], 1):
        point = work.verdict.point if work.verdict is not None else None
        if work.verdict is None or point is None or not point.intensity or not point.flops_per_s:
            continue
        xs.append(point.intensity)
        ceilings |= dict.fromkeys(point.ceilings)
        points.append(
            {
                "x": round_figure(point.intensity),
                "y": round_figure(point.flops_per_s / TERA),
                "number": f"{number}",
                "name": cut_middle(one_line(work.name), NAME_LIMIT),
                "class": _name_class(work.verdict.bound),
                "rate": f"{format_rate(point.flops_per_s / TERA)} TFLOP/s",
                "of_roof": format_percent(point.share),
            }
        )
    if not points:
        return None
    found = ceiling_lines({"": tuple(ceilings)}, {"": xs}).get("", [])
    words = "; ".join(text for point in found for text in point["label"].split("\n") if text)
    lines = [point for point in found if not point["label"]]
    title = "Roofline"
    caption = "The numbers are those of the bars. Solid lines: measured ceilings; dashed: peaks of the data sheet."
    caption += f" {words}." if words else ""
    present = [bound for bound in BoundClass if any(point["class"] == _name_class(bound) for point in points)]
    return Figure(title, _make_spec(title, present), {"points": points, "ceilings": lines}, caption)


def _number_name(number: int, name: str) -> str:
    return f"{number}  {cut_middle(one_line(name), NAME_LIMIT)}"


def _name_class(bound: BoundClass) -> str:
    return "not decidable" if bound is BoundClass.UNDECIDED else bound.value


def _make_spec(title: str, classes: Sequence[BoundClass]) -> Spec:
    log = {"type": "log", "nice": False, "padding": 14}
    axis = {"grid": False, "format": "~g", "tickCount": 5}
    x = {"field": "x", "type": "quantitative", "title": "useful FLOP per compulsory byte", "scale": log, "axis": axis}
    y = {"field": "y", "type": "quantitative", "title": "useful TFLOP/s", "scale": log, "axis": axis}
    names = [_name_class(bound) for bound in classes]
    own = {"field": "class", "type": "nominal", "legend": share_bars.LEGEND}
    colour = {**own, "scale": {"domain": names, "range": [CLASS_COLOURS[bound] for bound in classes]}}
    shape = {**own, "scale": {"domain": names, "range": [CLASS_SHAPES[bound] for bound in classes]}}
    headings = (("name", "kernels"), ("class", "bound by"), ("rate", "rate"), ("of_roof", "of its roof"))
    tooltip = [{"field": field, "type": "nominal", "title": heading} for field, heading in headings]
    dash: Spec = {"field": "kind", "type": "nominal", "legend": None}
    dash |= {"scale": {"domain": ["measured", "peak"], "range": [[1, 0], [6, 4]]}}
    line = {"type": "line", "color": "#888888", "strokeWidth": 1.25, "aria": False}
    text = {"type": "text", "align": "left", "aria": False}
    layers: list[Spec] = [
        {
            "data": {"name": "ceilings"},
            "mark": line,
            "encoding": {"x": x, "y": y, "detail": {"field": "name"}, "strokeDash": dash},
        },
        {
            "data": {"name": "points"},
            "mark": {"type": "point", "size": 90},
            "encoding": {"x": x, "y": y, "color": colour, "shape": shape, "tooltip": tooltip},
        },
        {
            "data": {"name": "points"},
            "mark": {**text, "dx": 9, "dy": -8, "fontWeight": "bold"},
            "encoding": {"x": x, "y": y, "text": {"field": "number"}},
        },
    ]
    return make_base(title, layer=layers)


TABLE_KERNELS = 200
"""Most kernels of the page's tables."""

BARS = 15
VERDICTS = ((False, "contradicted"), (None, "open"), (True, "holds"))
"""`ProfileFinding.holds` -> its word, in the order of the table."""

TEXT_LIMIT = 2000

CASE_LIMIT = 120
LEAST_KERNELS = 4
"""Kernels of a case from which a treemap shows more than bars do."""

MOST_DETAILED = 12
"""Most cases with charts of their own."""

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


def read_sections(path: Path, *, device: str = "") -> list[Section]:
    """Returns the sections of the profile at `path`, a file or a folder. Raises ProfileError if nothing can be used,
    UsageError for an unknown device."""
    profile = read_profile(path)
    return build_sections(analyse_profile(profile, device=choose_spec(device, profile.agents)))


def build_time_figures(summary: ProfileSummary, colours: FamilyColours) -> tuple[Figure, ...]:
    """Returns the treemap of a summary's kernels, of those in the passes if these are known; () without times."""
    part = summary.in_passes or summary
    where = " in the passes" if part.is_part else ""
    figure = build_treemap(part.kernels, colours, f"GPU time{where} by family and kernel")
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
    return make_bound_sections(
        works, (convert_table(profile_cases.kernel_bound_table(bounds)),), profile_cases.kernel_bound_lines(bounds)
    )


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


def build_case_sections(
    found: Sequence[tuple[CaseResult, CaseProfile]], detailed: Sequence[tuple[CaseResult, ProfileSummary]], device: str
) -> list[Section]:
    """Returns the sections of profiled cases: what binds each on `device`, and the time of the kernels of those in
    `detailed`, at most MOST_DETAILED of them."""
    works = [BoundWork(case.key.entry, profile.bound) for case, profile in found]
    reasons = [line for pair in found for line in profile_cases.reason_lines(*pair)]
    table = convert_table(profile_cases.bound_table(found), "what binds each case")
    bounds, evidence = make_bound_sections(works, (table,), reasons)
    sections = [
        replace(bounds, title="What binds each case", lead=(f"device: {device}", profile_cases.LEGEND)),
        evidence,
    ]
    profiles = {case.key: profile for case, profile in found}
    for number, (case, summary) in enumerate(detailed[:MOST_DETAILED], 1):
        sections += _build_case(case, profiles[case.key], summary, number)
    return sections


def _build_case(case: CaseResult, profile: CaseProfile, summary: ProfileSummary, number: int) -> list[Section]:
    colours = choose_colours(summary.kernels)
    tables = [convert_table(table) for table in profile_tables(summary, shown=TABLE_KERNELS)]
    figures = build_time_figures(summary, colours) if len(summary.kernels) >= LEAST_KERNELS else ()
    name = one_line(case.key.entry, CASE_LIMIT)
    lead = tuple(profile_cases.detail_lines(case, profile))
    time = Section(f"case-{number}", name, lead, figures, tuple(tables[:1]), f"Case {number}")
    bars = build_kernel_section(summary, colours, ())
    return [replace(time, figures=(*figures, *bars[0].figures) if bars else figures, tables=tuple(tables), folded=True)]
