"""Text of nanoseconds, shares and gains in profiles; all rounding of these reports is here. Also cuts kernel names,
which profilers give with all template arguments, to the part that distinguishes them."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pytest_attnperf.records.code import Occupancy
from pytest_attnperf.records.counters import without_parameters
from pytest_attnperf.records.profiles import Size3
from pytest_attnperf.records.time_units import NS_PER_US
from pytest_attnperf.reports.text.figures import ABSENT, format_speedup, one_line
from pytest_attnperf.reports.text.time_cells import SHARED, TimeCell

KIB = 1024

ELLIPSIS = "..."


def make_ns_cell(ns: float | None, scale: str = SHARED) -> TimeCell:
    """Returns a table's cell of a time in nanoseconds; None is not known."""
    return TimeCell(None if ns is None else ns / NS_PER_US, scale)


def format_percent(share: float | None) -> str:
    """Returns a share in percent, small ones with more digits: 0.776 -> '77.6 %', 0.00058 -> '0.058 %'; '-' for
    None."""
    if share is None:
        return ABSENT
    value = share * 100
    if not math.isfinite(value):
        return "without limit"
    if value == 0:
        return "0 %"
    size = abs(value)
    return f"{value:.1f} %" if size >= 9.95 else f"{value:.2f} %" if size >= 0.0995 else f"{value:.2g} %"


def format_gain(limit: float | None) -> str:
    """Returns a gain as a percentage, 0.0152 -> '+1.52 %', or from 1 on as a factor, 4.21 -> '5.21x'; '-' for None."""
    if limit is None:
        return ABSENT
    return (
        f"+{format_percent(limit)}"
        if limit < 1
        else "without limit"
        if math.isinf(limit)
        else format_speedup(1 + limit)
    )


def format_signed_percent(ratio: float | None) -> str:
    """Returns a ratio after / before as a signed percentage: 0.957 -> '-4.3 %'; '-' for None or not finite."""
    if ratio is None or not math.isfinite(ratio):
        return ABSENT
    text = f"{(ratio - 1) * 100:+.1f}"
    return "0.0 %" if text in ("+0.0", "-0.0") else f"{text} %"


def format_count(number: float | None) -> str:
    """Returns a count with separators, '1,953'; counts per pass may be fractions, '0.8'. '-' for None."""
    if number is None:
        return ABSENT
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.2f}".rstrip("0")


def format_size(size: Size3 | None) -> str:
    """Returns three sizes without ones at the end: (32, 8, 1) -> '32x8', (256, 1, 1) -> '256'; '-' for None."""
    if size is None:
        return ABSENT
    kept = list(size)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return "x".join(map(str, kept))


def format_waves(occupancy: Occupancy | None) -> str:
    """Returns 'WAVES/MAXIMUM LIMITERS' of a SIMD, in whole workgroups: '8/16 vgprs'; '-' for None, or 'does not
    fit'."""
    if occupancy is None:
        return ABSENT
    if not occupancy.fits:
        return "does not fit"
    limit = f" {'+'.join(occupancy.limiters)}" if occupancy.limiters else ""
    return f"{occupancy.whole_waves_per_simd:.3g}/{occupancy.max_waves_per_simd}{limit}"


def short_name(name: str, width: int) -> str:
    """Returns a kernel's name in at most `width` columns: without return type and parameters, then without its middle.

    'void at::native::f<4, Add<float> >(int, Add<float>)' -> 'at::native::f<4, Add<float> >'. The end stays, because
    names of one library differ there.
    """
    clean = one_line(name, 4 * max(width, 1) + len(name)).strip()
    return cut_middle(without_parameters(clean.removeprefix("void ")), width)


def tell_apart(names: Iterable[str], width: int) -> dict[str, str]:
    """Returns each kernel's name in at most `width` columns. Names that would look alike keep the place where they
    differ instead of their end; a number tells what is then still alike."""
    short = {name: short_name(name, width) for name in names}
    alike: dict[str, list[str]] = {}
    for name, cut in short.items():
        alike.setdefault(cut, []).append(name)
    used = set(alike)
    for group in alike.values():
        if len(group) < 2:
            continue
        whole = [short_name(name, len(name)) for name in group]
        places = range(max(map(len, whole)))
        differ = next((place for place in places if len({text[: place + 1] for text in whole}) > 1), 0)
        for number, (name, text) in enumerate(zip(group, whole, strict=True), 1):
            cut = _keep_place(text, differ, width)
            if cut in used:
                cut = f"{cut[: max(0, width - 1 - len(f'#{number}'))]} #{number}"
            short[name] = cut
            used.add(cut)
    return short


def _keep_place(text: str, place: int, width: int) -> str:
    """Returns a beginning of `text`, '...', and what stands around `place`, in `width` columns."""
    head = max(0, width * 2 // 5 - len(ELLIPSIS))
    left = max(0, width - head - len(ELLIPSIS))
    begin = max(head, min(place - left // 4, len(text) - left))
    return f"{text[:head]}{ELLIPSIS}{text[begin : begin + left]}"[:width]


def cut_middle(text: str, width: int) -> str:
    """Returns text in at most `width` columns, '...' for its middle; three fifths of the rest is the beginning."""
    if len(text) <= width:
        return text
    kept = max(width - len(ELLIPSIS), 0)
    behind = kept * 2 // 5
    return f"{text[: kept - behind]}{ELLIPSIS[: max(width, 0)]}{text[len(text) - behind :] if behind else ''}"
