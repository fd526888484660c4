"""Two profiles side by side: which families and kernels the difference is made of, and how the devices compare."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_attnperf.records.profiles import Change, PeakRatio, ProfileComparison
from pytest_attnperf.reports.run.kernel_names import short_name
from pytest_attnperf.reports.run.profile_figures import count, ns_as_ms, percent, signed_percent
from pytest_attnperf.reports.text.figures import ABSENT, format_speedup, one_line
from pytest_attnperf.reports.text.wide_tables import Column, Table

NAME_WIDTH = 36
NOTE_WIDTH = 60
TEXT_LIMIT = 2000
SHOWN_KERNELS = 15
COLUMNS = ("before ms", "after ms", "change", "of the difference", "calls before", "after", "")
LEFT = frozenset({""})


def comparison_lines(found: ProfileComparison) -> list[str]:
    """Before against after in one line, and what must be known of it."""
    speed = format_speedup(found.speedup)
    lines = [
        f"before: {one_line(found.before, TEXT_LIMIT)}",
        f"after: {one_line(found.after, TEXT_LIMIT)}",
        f"GPU time per {found.per}: {ns_as_ms(found.before_ns)} ms -> {ns_as_ms(found.after_ns)} ms, {speed} as fast",
    ]
    return [*lines, *(f"note: {one_line(note, TEXT_LIMIT)}" for note in found.notes)]


def comparison_tables(found: ProfileComparison, *, shown: int = SHOWN_KERNELS) -> list[Table]:
    """Families, the kernels that differ most, and the two devices where their peaks are known."""
    unit = "" if found.per == "profile" else f" (each per {found.per})"
    tables = [Table(f"families{unit}", "family", _columns(), tuple(_row(change) for change in found.families))]
    rows = tuple(_row(change) for change in found.kernels[:shown])
    more = len(found.kernels) - shown
    notes = (f"{more} more (--all shows them)",) if more > 0 else ()
    tables.append(Table(f"kernels{unit}", "kernel", _columns(), rows, notes))
    return [*tables, *([_peak_table(found.peaks)] if found.peaks else [])]


def _columns() -> tuple[Column, ...]:
    return tuple(Column(header, align="left" if header in LEFT else "right") for header in COLUMNS)


def _row(change: Change) -> tuple[str, ...]:
    return (
        short_name(change.name, NAME_WIDTH),
        ns_as_ms(change.before_ns) if change.before_calls else ABSENT,
        ns_as_ms(change.after_ns) if change.after_calls else ABSENT,
        signed_percent(change.after_ns / change.before_ns if change.before_ns and change.after_calls else None),
        percent(change.share_of_change),
        count(change.before_calls),
        count(change.after_calls),
        one_line(change.note, NOTE_WIDTH),
    )


def _peak_table(peaks: Sequence[PeakRatio]) -> Table:
    rows = tuple(
        (
            one_line(peak.what, NAME_WIDTH),
            _figure(peak.own, peak.own_kind),
            _figure(peak.other, peak.other_kind),
            one_line(peak.unit, NAME_WIDTH),
            f"{peak.ratio:.2f}x",
        )
        for peak in peaks
    )
    headers = ("before", "after", "unit", "after / before")
    return Table("devices", "figure", tuple(map(Column, headers)), rows)


def _figure(value: float, kind: str) -> str:
    return f"{value:,.4g} {kind}".rstrip()
