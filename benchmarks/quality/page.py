"""The table and the plot of a file that `gate_quality.py` has filled, as docs/evidence.md shows them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from figures_records import Collection

from benchmarks.quality.rules import LEVELS, PLAIN, SUITE, TOOLS, Rate, Tool, in_suite, rate_of

ABSENT = "-"


def rates(collected: Collection) -> dict[str, dict[str, Rate | None]]:
    """Tool -> label -> how often it says SLOWER; tools without any number are left out."""
    found = {tool.name: {label: rate_of(tool, label, collected) for label in (PLAIN, *LEVELS)} for tool in TOOLS}
    return {name: by_label for name, by_label in found.items() if any(by_label.values())}


def render_table(collected: Collection) -> str:
    """Everything the file says, as Markdown: where it was measured, the rates, the cases and their true slowdowns."""
    found = rates(collected)
    parts = [_measured_on(collected), _rates_table(found), _units(found), _spread_table(collected)]
    parts.append(_cases_table(collected))
    return "\n\n".join(part for part in parts if part) + "\n"


def _measured_on(collected: Collection) -> str:
    """Products, cards, runs and versions."""
    passes = collected.passes
    if not passes:
        return "Nothing was measured yet."
    products = sorted({one.product for one in passes})
    cards, runs = {one.gpu for one in passes}, {one.run for one in passes}
    versions = sorted({f"{name} {version}" for one in passes for name, version in one.versions.items()})
    days = sorted({one.date[:10] for one in passes})
    seconds = sum(one.wall_s for one in passes)
    return (
        f"Measured on {', '.join(products)}, {_counted(len(cards), 'device')}, {_counted(len(runs), 'run')}, "
        f"{days[0]}{' to ' + days[-1] if len(days) > 1 else ''}, {seconds / 60:.0f} minutes; {', '.join(versions)}."
    )


def _rates_table(found: dict[str, dict[str, Rate | None]]) -> str:
    head = ["tool and rule", "false alarms a decision", f"red suites of {SUITE}"]
    head += [f"{100 * level:g} % missed" for level in LEVELS.values()]
    rows = []
    for name, by_label in found.items():
        plain = by_label[PLAIN]
        rows.append(
            [
                name,
                _percent(plain.share) if plain else ABSENT,
                _percent(in_suite(plain.share)) if plain else ABSENT,
                *(_missed(by_label[label]) for label in LEVELS),
            ]
        )
    return _markdown(head, rows)


def _missed(rate: Rate | None) -> str:
    """The share that was not called slower, and how much of it was UNDECIDED."""
    if rate is None:
        return ABSENT
    said = _percent(1 - rate.share)
    return f"{said}, {_percent(rate.undecided)} UNDECIDED" if rate.undecided else said


def _units(found: dict[str, dict[str, Rate | None]]) -> str:
    """How many decisions share no process or pair, and the interval of their rate (95 %, Clopper and Pearson)."""
    said = []
    for name, by_label in found.items():
        counts = [
            f"{label} {rate.hits} of {rate.independent} ({_percent(rate.interval[0])} to {_percent(rate.interval[1])})"
            for label, rate in by_label.items()
            if rate is not None
        ]
        said.append(f"- {name}: {'; '.join(counts)}")
    return "SLOWER, over decisions that share no process or pair:\n\n" + "\n".join(said)


def _spread_table(collected: Collection) -> str:
    """How far unchanged processes lie apart: standard deviation, and the slowest over the fastest, by case and tool."""
    us: dict[tuple[str, str], list[float]] = {}
    for process in collected.processes:
        if process.label == PLAIN:
            us.setdefault((process.case, process.method), []).append(process.us)
    several = {place: times for place, times in us.items() if len(times) > 1}
    rows = [
        [case, method, f"{statistics.median(times):.4g}", _percent(statistics.stdev(times) / statistics.fmean(times)),
         f"{max(times) / min(times):.2f}"]
        for (case, method), times in sorted(several.items())
    ]  # fmt: skip
    return (
        _markdown(["case, unchanged", "measured by", "us", "sd of processes", "slowest / fastest"], rows)
        if rows
        else ""
    )


def _cases_table(collected: Collection) -> str:
    """Each case's time and true slowdowns, with what was edited."""
    us: dict[str, list[float]] = {}
    for process in collected.processes:
        if process.label == PLAIN and process.method == "attnperf":
            us.setdefault(process.case, []).append(process.us)
    rows = []
    for case, times in us.items():
        row = [case, f"{statistics.median(times):.4g}"]
        for label in LEVELS:
            sizes = [size for size in collected.sizes if (size.case, size.label) == (case, label)]
            row.append(
                f"{100 * statistics.fmean(size.size for size in sizes):.2f} ({sizes[-1].how})" if sizes else ABSENT
            )
        rows.append(row)
    return _markdown(["case", "us", *(f"{100 * level:g} %: true %" for level in LEVELS.values())], rows) if rows else ""


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _percent(share: float) -> str:
    """'0 %', '0.25 %', '3.1 %', '97 %'."""
    value = 100 * share
    if 0 < value < 1:
        return f"{value:.2g} %"
    return f"{value:.3g} %" if 1 <= value < 10 or 99 < value < 100 else f"{value:.0f} %"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 420, 56, 24, 250, 48
COLOURS = ("#b3261e", "#e07b39", "#8d6e63", "#7b1fa2", "#1565c0", "#42a5f5", "#1b5e20", "#66bb6a")
MOST_PERCENT = 5.0


def render_plot(collected: Collection) -> str:
    """An SVG: the share of decisions that say SLOWER over the true slowdown, a line for each tool; 0 % is unchanged."""
    found = rates(collected)
    colours = {tool.name: colour for tool, colour in zip(TOOLS, COLOURS, strict=True)}
    parts = [*_axes(), *(_line(tool, found[tool.name], colours) for tool in TOOLS if tool.name in found)]
    parts += [
        f'<text x="{WIDTH - RIGHT + 34}" y="{TOP + 14 + 20 * index}">{_escaped(name)}</text>'
        f'<line x1="{WIDTH - RIGHT + 12}" x2="{WIDTH - RIGHT + 30}" y1="{TOP + 10 + 20 * index}" '
        f'y2="{TOP + 10 + 20 * index}" stroke="{colours[name]}" stroke-width="2"/>'
        for index, name in enumerate(found)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12">\n<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _axes() -> list[str]:
    parts = []
    for percent in range(0, 101, 20):
        y = _y(percent / 100)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{percent} %</text>')
    for percent in (0.0, *(100 * level for level in LEVELS.values())):
        label = "unchanged" if percent == 0 else f"{percent:g} %"
        parts.append(f'<text x="{_x(percent / 100)}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{label}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle">true slowdown</text>')
    parts.append(f'<text x="{LEFT}" y="{TOP - 8}">decisions that say slower</text>')
    return parts


def _line(tool: Tool, by_label: dict[str, Rate | None], colours: dict[str, str]) -> str:
    points = [
        (_x(LEVELS.get(label, 0.0)), _y(rate.share)) for label, rate in by_label.items() if rate is not None
    ]  # fmt: skip
    path = " ".join(f"{x},{y}" for x, y in points)
    dots = "".join(f'<circle cx="{x}" cy="{y}" r="3" fill="{colours[tool.name]}"/>' for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colours[tool.name]}" stroke-width="2"/>{dots}'


def _x(level: float) -> float:
    return round(LEFT + 100 * level / MOST_PERCENT * (WIDTH - RIGHT - LEFT), 1)


def _y(share: float) -> float:
    return round(TOP + (1 - share) * (HEIGHT - TOP - BOTTOM), 1)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
