"""Checks claims of where the time goes: sums, percentages, and what the members of a row really do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_attnperf.records.profiles import ProfileFinding
from pytest_attnperf.tools.profilers.claims.claim_rules import (
    Known,
    format_count,
    make_agreement,
    make_contradiction,
    make_open_finding,
)
from pytest_attnperf.tools.profilers.claims.claimed_figures import (
    Interval,
    exact_interval,
    format_percent,
    format_seconds,
)
from pytest_attnperf.tools.profilers.claims.records import Member, ReportedRow, ReportedTable

NATURES = {
    "compute": "compute kernels",
    "conversion": "kernels that convert between types",
    "copy": "copies",
    "fill": "fills",
    "communication": "kernels that communicate",
    "other": "other kernels",
}


def assess_claims(known: Known) -> Iterator[ProfileFinding]:
    """Yields the findings on times, calls, percentages and members in a report's table; none without a table."""
    table = known.claims.table
    if table is None or not table.rows:
        return
    yield from _assess_times(table)
    yield from _assess_calls(table)
    yield from _assess_percentages(table)
    for row in table.rows:
        if row.members:
            yield from _assess_members(row)
            yield from _assess_natures(row)


def sum_times(rows: Sequence[ReportedRow]) -> Interval:
    """Returns the sum of the times of a table's rows in seconds, as the interval that their rounding allows."""
    return Interval(sum(row.time.interval.low for row in rows), sum(row.time.interval.high for row in rows))


def format_row(row: ReportedRow) -> str:
    """Formats a row of a report's table with what it gives: 'attention: 31.3 ms, 96 calls, 1.5%'."""
    parts = [row.time.text, format_count(row.calls, "call") if row.calls is not None else ""]
    parts.append(row.percent.text if row.percent else "")
    return f"{row.name}: {', '.join(part for part in parts if part)}"


def _assess_times(table: ReportedTable) -> Iterator[ProfileFinding]:
    summed = sum_times(table.rows)
    text = f"{len(table.rows)} rows add up to {format_seconds(summed.middle, 5)}"
    if table.total is None:
        yield make_open_finding("sum of times", "the rows' times", f"{text}; no total is given")
    elif summed.can_equal(table.total.time.interval):
        yield make_agreement("sum of times", table.total.said, f"{table.total.said}: {text}")
    else:
        yield make_contradiction("sum of times", table.total.said, text)


def _assess_calls(table: ReportedTable) -> Iterator[ProfileFinding]:
    counted = [row.calls for row in table.rows if row.calls is not None]
    if not counted:
        return
    text = f"{len(counted)} rows add up to {format_count(sum(counted), 'call')}"
    if table.calls is None:
        yield make_open_finding("sum of calls", "the rows' calls", f"{text}; no total is given")
    elif sum(counted) == table.calls.count and len(counted) == len(table.rows):
        yield make_agreement("sum of calls", table.calls.said, f"{table.calls.said}: {text}")
    else:
        yield make_contradiction("sum of calls", table.calls.said, text)


def _assess_percentages(table: ReportedTable) -> Iterator[ProfileFinding]:
    total = table.total.time.interval if table.total else sum_times(table.rows)
    said = [row for row in table.rows if row.percent is not None]
    if not said:
        return
    wrong = False
    for row in said:
        share = row.time.interval.divide_by(total)
        if row.percent is not None and not share.can_equal(row.percent.interval):
            wrong = True
            yield make_contradiction(
                f"percentage of {row.name}", format_row(row), f"{format_percent(share.middle)} of the total"
            )
    if not wrong:
        text = f"each is its time over {format_seconds(total.middle, 5)}, as far as its decimals go"
        yield make_agreement("percentages", f"percentages of {len(said)} rows", text)
    yield from _assess_percentage_sum(said, whole=len(said) == len(table.rows))


def _assess_percentage_sum(rows: Sequence[ReportedRow], *, whole: bool) -> Iterator[ProfileFinding]:
    figures = [row.percent.interval for row in rows if row.percent is not None]
    summed = Interval(sum(one.low for one in figures), sum(one.high for one in figures))
    said = f"the percentages add up to {summed.middle * 100:.4g}%"
    if summed.can_equal(exact_interval(1.0)):
        text = f"{said}: within the rounding of {len(figures)} figures, no error"
        yield make_agreement("sum of percentages", said, text)
    elif summed.low > 1:
        yield make_contradiction(
            "sum of percentages", said, f"more than 100%, beyond the rounding of {len(figures)} figures"
        )
    elif whole:
        yield make_open_finding("sum of percentages", said, f"{said}: less than 100%; are rows left out?")


def _assess_members(row: ReportedRow) -> Iterator[ProfileFinding]:
    calls = sum(member.calls for member in row.members)
    words = " + ".join(f"{member.calls} {member.name}" for member in row.members)
    if row.calls is not None:
        text = f"{words} = {format_count(calls, 'call')}"
        rule = f"members of {row.name}"
        same = calls == row.calls
        yield (
            make_agreement(rule, format_row(row), f"{format_row(row)}: {text}")
            if same
            else make_contradiction(rule, format_row(row), text)
        )
    times = [member.time.interval for member in row.members if member.time is not None]
    if len(times) == len(row.members):
        summed = Interval(sum(time.low for time in times), sum(time.high for time in times))
        rule, text = f"time of the members of {row.name}", f"{format_seconds(summed.middle)} together"
        same = summed.can_equal(row.time.interval)
        yield (
            make_agreement(rule, format_row(row), f"{format_row(row)}: {text}")
            if same
            else make_contradiction(rule, format_row(row), text)
        )


def _assess_natures(row: ReportedRow) -> Iterator[ProfileFinding]:
    if row.nature is None:
        return
    others = [member for member in row.members if find_nature(member) != row.nature]
    rule, said = f"nature of {row.name}", f"{format_row(row)}, {NATURES[row.nature]}"
    if not others:
        yield make_agreement(rule, said, f"{said}: all of them")
        return
    found: dict[str, list[Member]] = {}
    for member in row.members:
        found.setdefault(find_nature(member), []).append(member)
    words = [
        f"{sum(one.calls for one in members)} {NATURES[nature]}{_format_members(members)}"
        for nature, members in found.items()
    ]
    yield make_contradiction(rule, said, " + ".join(words))


def _format_members(members: Sequence[Member]) -> str:
    return f" ({', '.join(one.name + (', ' + one.time.text if one.time else '') for one in members)})"


def find_nature(member: Member) -> str:
    """Returns what a row's member does ('compute', 'copy', ...), as the report says or else by its kernel name."""
    if member.nature is not None:
        return member.nature
    from pytest_attnperf.tools.profilers.kernel_families import FamilyRules

    return FamilyRules.load_default().find_family(member.name, "kernel").nature
