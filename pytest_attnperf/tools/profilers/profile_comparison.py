"""Compares two profiles: which kernels and families cause the difference in GPU time.

Times are per forward pass if both profiles have passes, else of the whole profile. If both have the order of
dispatches, every call counts with the mean of steady state, so that warm-up does not count; a kernel that ran only in
the warm-up then takes no time.

A difference within the spread of the calls is not called a change. The rule is that of notched box plots (McGill, Tukey
and Larsen 1978): medians of steady state differ by no more than the sum over both profiles of 1.57 times the
interquartile range / sqrt(calls). It calls about 2 % of pairs of runs with one normal distribution different
(simulated: 12 % at 5 calls, 3 % at 16). This helps to read a profile and is no gate: calls of one run are not
independent, and runs differ by more than their calls do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.profile_changes import Change, PeakRatio, ProfileComparison
from pytest_attnperf.records.profiles import KernelTime, ProfileSummary, Spread
from pytest_attnperf.records.time_units import NS_PER_US, format_ns, format_times
from pytest_attnperf.reports.run import profile_figures
from pytest_attnperf.reports.run.profile_figures import (
    format_count,
    format_percent,
    format_signed_percent,
    make_ns_cell,
)
from pytest_attnperf.reports.text.figures import ABSENT, format_speedup, one_line
from pytest_attnperf.reports.text.time_cells import Cell
from pytest_attnperf.reports.text.wide_tables import Column, Table
from pytest_attnperf.tools.profilers.name_matching import Match, match_names, shorten_name
from pytest_attnperf.tools.profilers.peak_ratios import (
    SPEED,
    Peaks,
    describe_advantage,
    describe_mixed_kinds,
    peak_ratios,
)

GONE, NEW, WITHIN = "gone", "new", "within the spread"
FEW_CALLS = 5
"""Least calls for a spread: with fewer, quartiles are meaningless, and no difference counts as within the spread."""

NOTCH = 1.57
"""Half the width of a notch, in units of interquartile range / sqrt(calls)."""

RULE = (
    f"'{WITHIN}': medians of steady state differ by no more than the sum of {NOTCH} x interquartile range / "
    "sqrt(calls) of both; this is no gate"
)
SAME_CALLS = 1e-9

NAME_WIDTH = 36
NOTE_WIDTH = 60
TEXT_LIMIT = 2000
SHOWN_KERNELS = 15
COLUMNS = ("before", "after", "change", "of the difference", "calls before", "after", "")
LEFT = frozenset({""})


@dataclass(frozen=True)
class _Unit:
    """How the kernels of one profile are counted: per pass or whole, and in steady state or all calls."""

    passes: int
    steady: bool

    def choose_spread(self, kernel: KernelTime) -> Spread | None:
        return kernel.steady if self.steady else kernel.spread

    def count_calls(self, kernel: KernelTime) -> float:
        """Returns a kernel's calls per pass, or in the whole profile if passes are not known; 0 if only calls after the
        warm-up count and it has none."""
        return kernel.spread.calls / self.passes if self.choose_spread(kernel) else 0.0

    def compute_ns(self, kernel: KernelTime) -> float:
        spread = self.choose_spread(kernel)
        return (spread.mean_ns or 0.0) * self.count_calls(kernel) if spread else 0.0


def compare_profiles(
    before: ProfileSummary,
    after: ProfileSummary,
    *,
    before_peaks: Peaks | None = None,
    after_peaks: Peaks | None = None,
) -> ProfileComparison:
    """Returns how the GPU time of families and kernels changes from one profile to the other, the largest change first;
    with the peaks of two devices, also ratios of these."""
    steady = _has_order(before) and _has_order(after)
    counts = [summary.passes.count if summary.passes else None for summary in (before, after)]
    per_pass = all(counts)
    if per_pass:
        before, after = before.in_passes or before, after.in_passes or after
    old_unit, new_unit = (_Unit(count or 1 if per_pass else 1, steady) for count in counts)
    old, new = _group_by_name(before), _group_by_name(after)
    pairs = [(match, *_split_sides(match, old, new)) for match in match_names(old, new)]
    kernels = [_compute_change(match, left, right, old_unit, new_unit) for match, left, right in pairs]
    before_ns, after_ns = sum(change.before_ns for change in kernels), sum(change.after_ns for change in kernels)
    families = _compare_families(before, after, old_unit, new_unit, kernels)
    per = "pass" if per_pass else "profile"
    speeds = (before_ns, after_ns) if min(before_ns, after_ns) > 0 else None
    peaks = _compare_peaks(before_peaks, after_peaks, speeds, f"{'passes' if per_pass else 'profiles'}/s")
    notes = [*_unit_notes(before, after, per, steady), *_noise_notes(kernels, steady)]
    notes += [*_device_notes(before, after, before_peaks, after_peaks), *_peak_notes(peaks)]
    return ProfileComparison(
        before=before.name,
        after=after.name,
        per=per,
        before_ns=before_ns,
        after_ns=after_ns,
        families=_sort_changes(families, after_ns - before_ns),
        kernels=_sort_changes(kernels, after_ns - before_ns),
        peaks=peaks,
        notes=tuple(notes),
    )


def is_within_spread(before: Spread, after: Spread) -> bool | None:
    """Returns whether two medians differ by no more than the sum of their uncertainties, each 1.57 x interquartile
    range / sqrt(calls); None without quartiles or with fewer than 5 calls."""
    widths = [_half_width(spread) for spread in (before, after)]
    if before.median_ns is None or after.median_ns is None or None in widths:
        return None
    return abs(before.median_ns - after.median_ns) <= sum(width or 0.0 for width in widths)


def _half_width(spread: Spread) -> float | None:
    if spread.q1_ns is None or spread.q3_ns is None or spread.calls < FEW_CALLS:
        return None
    return NOTCH * (spread.q3_ns - spread.q1_ns) / math.sqrt(spread.calls)


def _has_order(summary: ProfileSummary) -> bool:
    return any(kernel.steady is not None for kernel in summary.kernels)


def _group_by_name(summary: ProfileSummary) -> dict[str, list[KernelTime]]:
    """Returns name -> all kernels and copies with it, because a copy may have the name of a kernel."""
    found: dict[str, list[KernelTime]] = {}
    for kernel in summary.kernels:
        found.setdefault(kernel.name, []).append(kernel)
    return found


def _split_sides(
    match: Match, old: Mapping[str, list[KernelTime]], new: Mapping[str, list[KernelTime]]
) -> tuple[list[KernelTime], list[KernelTime]]:
    return (
        [kernel for name in match.before for kernel in old[name]],
        [kernel for name in match.after for kernel in new[name]],
    )


def _compute_change(
    match: Match, old: Sequence[KernelTime], new: Sequence[KernelTime], old_unit: _Unit, new_unit: _Unit
) -> Change:
    change = Change(
        name=match.name,
        before_ns=sum(old_unit.compute_ns(kernel) for kernel in old),
        after_ns=sum(new_unit.compute_ns(kernel) for kernel in new),
        before_calls=sum(old_unit.count_calls(kernel) for kernel in old),
        after_calls=sum(new_unit.count_calls(kernel) for kernel in new),
    )
    if not old or not new:
        return replace(change, note=NEW if not old else GONE)
    if not match.is_exact:
        names = f"{_format_kernels(match.before)} before, {_format_kernels(match.after)} after"
        return replace(change, note=f"matched without tile sizes and numbers: {names}")
    return replace(change, note=WITHIN if _is_within(change, old, new, old_unit, new_unit) else "")


def _is_within(
    change: Change, old: Sequence[KernelTime], new: Sequence[KernelTime], old_unit: _Unit, new_unit: _Unit
) -> bool:
    """Returns whether a change is within the spread; False without times after a warm-up, for several kernels, or if
    calls per pass or profile differ."""
    if len(old) != 1 or len(new) != 1 or not old_unit.steady:
        return False
    spreads = old_unit.choose_spread(old[0]), new_unit.choose_spread(new[0])
    if not math.isclose(change.before_calls, change.after_calls, rel_tol=SAME_CALLS) or None in spreads:
        return False
    return spreads[0] is not None and spreads[1] is not None and is_within_spread(spreads[0], spreads[1]) is True


def _format_kernels(names: Sequence[str]) -> str:
    return shorten_name(names[0]) if len(names) == 1 else f"{len(names)} kernels"


def _compare_families(
    before: ProfileSummary, after: ProfileSummary, old_unit: _Unit, new_unit: _Unit, kernels: Sequence[Change]
) -> list[Change]:
    """Returns changes of families as sums over kernels, because a family's own total includes the warm-up."""
    within = {change.name for change in kernels if change.note == WITHIN}
    found: dict[str, Change] = {}
    notes: dict[str, bool] = {}
    for side, (summary, unit) in enumerate(((before, old_unit), (after, new_unit))):
        for kernel in summary.kernels:
            change = found.get(kernel.family, Change(kernel.family, 0.0, 0.0, 0.0, 0.0))
            ns, calls = unit.compute_ns(kernel), unit.count_calls(kernel)
            notes[kernel.family] = notes.get(kernel.family, True) and kernel.name in within
            found[kernel.family] = (
                replace(change, after_ns=change.after_ns + ns, after_calls=change.after_calls + calls)
                if side
                else replace(change, before_ns=change.before_ns + ns, before_calls=change.before_calls + calls)
            )
    old, new = ({kernel.family for kernel in summary.kernels} for summary in (before, after))
    return [
        replace(change, note=GONE if name not in new else NEW if name not in old else WITHIN if notes[name] else "")
        for name, change in found.items()
    ]


def _sort_changes(changes: Sequence[Change], whole_ns: float) -> tuple[Change, ...]:
    shared = [
        replace(change, share_of_change=(change.after_ns - change.before_ns) / whole_ns if whole_ns else None)
        for change in changes
    ]
    return tuple(sorted(shared, key=lambda change: (-abs(change.after_ns - change.before_ns), change.name)))


def _unit_notes(before: ProfileSummary, after: ProfileSummary, per: str, steady: bool) -> list[str]:
    notes = []
    if per == "profile":
        calls = f"{before.calls} calls before and {after.calls} after"
        notes.append(f"forward passes are not known in both: whole profiles are compared, with {calls}")
    if not steady:
        why = "no steady state is known of one of them (no trace, or all of it is warm-up)"
        return [*notes, f"{why}: all calls are compared, warm-up included"]
    notes.append("warm-up is left out: every call counts as one of steady state")
    for summary in (before, after):
        left_out = [kernel for kernel in summary.kernels if kernel.steady is None]
        if left_out:
            took = format_ns(sum(kernel.spread.total_ns for kernel in left_out))
            names = ", ".join(shorten_name(kernel.name) for kernel in left_out[:3])
            more = f" and {len(left_out) - 3} more" if len(left_out) > 3 else ""
            notes.append(f"{summary.name}: only in the warm-up, and left out: {names}{more} ({took})")
    return notes


def _noise_notes(kernels: Sequence[Change], steady: bool) -> list[str]:
    if not steady:
        return ["no spread of single calls is known in both: a change cannot be distinguished from noise"]
    if kernels and all(change.note == WITHIN for change in kernels):
        return [RULE, "every kernel is within the spread: these profiles show no difference"]
    return [RULE]


def _device_notes(
    before: ProfileSummary, after: ProfileSummary, before_peaks: Peaks | None, after_peaks: Peaks | None
) -> list[str]:
    old, new = _join_devices(before), _join_devices(after)
    if old == new or not old or not new or (before_peaks and after_peaks):
        return []
    return [f"different devices ({old} before, {new} after), and the peaks of both are not known: no ratio of peaks"]


def _join_devices(summary: ProfileSummary) -> str:
    names = {agent.product or agent.arch for agent in summary.agents if agent.kind == "gpu"}
    return ", ".join(sorted(names - {""}))


def _compare_peaks(
    before: Peaks | None, after: Peaks | None, ns: tuple[float, float] | None, unit: str
) -> tuple[PeakRatio, ...]:
    """Returns ratios (after / before) of two devices' peaks and of the speeds of two profiles; () if peaks are unknown
    (None), equal, or have no figure in common.

    The speeds are 1e9 / `ns` (times of both profiles; None: no speeds), called `unit`; or, if the user gave speeds with
    both peaks, those. Raises UsageError if the user gave a speed with one of the peaks only."""
    if (
        before is None
        or after is None
        or before == after
        or not (before.figures.keys() & after.figures.keys()) - {SPEED}
    ):
        return ()
    speeds = ({SPEED: 1e9 / ns[0]}, {SPEED: 1e9 / ns[1]}) if ns else ({}, {})
    given = [SPEED in peaks.figures for peaks in (before, after)]
    if any(given) != all(given):
        raise UsageError("speed is given for one profile only; give it in --peaks and --against-peaks, or in neither")
    return peak_ratios(
        {**(speeds[0] if not any(given) else {}), **before.figures},
        {**(speeds[1] if not any(given) else {}), **after.figures},
        own_kind=before.kind,
        other_kind=after.kind,
        speed_unit="as given" if any(given) else unit,
    )


def _peak_notes(peaks: Sequence[PeakRatio]) -> list[str]:
    text = describe_advantage(peaks)
    return [*describe_mixed_kinds(peaks), *([text] if text else [])]


def comparison_lines(found: ProfileComparison) -> list[str]:
    """Returns text lines: the names of both profiles, their GPU times, and the notes of the comparison."""
    speed = format_speedup(found.speedup)
    times = format_times([found.before_ns / NS_PER_US, found.after_ns / NS_PER_US])
    lines = [
        f"before: {one_line(found.before, TEXT_LIMIT)}",
        f"after: {one_line(found.after, TEXT_LIMIT)}",
        f"GPU time per {found.per}: {times}, {speed} as fast",
    ]
    return [*lines, *(f"note: {one_line(note, TEXT_LIMIT)}" for note in found.notes)]


def comparison_tables(found: ProfileComparison, *, shown: int = SHOWN_KERNELS) -> list[Table]:
    """Returns tables of families, of the `shown` kernels that differ most, and of the devices' peaks if known."""
    unit = "" if found.per == "profile" else f" (each per {found.per})"
    tables = [
        Table(f"families{unit}", "family", _make_columns(), tuple(_format_change(change) for change in found.families))
    ]
    rows = tuple(_format_change(change) for change in found.kernels[:shown])
    more = len(found.kernels) - shown
    notes = (f"{more} more (--all shows them)",) if more > 0 else ()
    tables.append(Table(f"kernels{unit}", "kernel", _make_columns(), rows, notes))
    return [*tables, *([_peak_table(found.peaks)] if found.peaks else [])]


def _make_columns() -> tuple[Column, ...]:
    return tuple(Column(header, align="left" if header in LEFT else "right") for header in COLUMNS)


def _format_change(change: Change) -> tuple[Cell, ...]:
    return (
        profile_figures.short_name(change.name, NAME_WIDTH),
        make_ns_cell(change.before_ns) if change.before_calls else ABSENT,
        make_ns_cell(change.after_ns) if change.after_calls else ABSENT,
        format_signed_percent(change.after_ns / change.before_ns if change.before_ns and change.after_calls else None),
        format_percent(change.share_of_change),
        format_count(change.before_calls),
        format_count(change.after_calls),
        one_line(change.note, NOTE_WIDTH),
    )


def _peak_table(peaks: Sequence[PeakRatio]) -> Table:
    rows = tuple(
        (
            one_line(peak.what, NAME_WIDTH),
            _format_figure(peak.own, peak.own_kind),
            _format_figure(peak.other, peak.other_kind),
            one_line(peak.unit, NAME_WIDTH),
            f"{peak.ratio:.2f}x",
        )
        for peak in peaks
    )
    headers = ("before", "after", "unit", "after / before")
    return Table("devices", "figure", tuple(map(Column, headers)), rows)


def _format_figure(value: float, kind: str) -> str:
    return f"{value:,.4g} {kind}".rstrip()
