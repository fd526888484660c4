"""Claims of where the time goes: sums, percentages, and what the members of a row really do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_attnperf.records.profiles import Finding
from pytest_attnperf.tools.profilers.claims.figures import Interval, exactly, percent, seconds
from pytest_attnperf.tools.profilers.claims.records import Member, Row, Table
from pytest_attnperf.tools.profilers.claims.rules import Known, agrees, contradicts, plural, undecided

NATURES = {
    "compute": "compute kernels",
    "conversion": "kernels that convert between types",
    "copy": "copies",
    "fill": "fills",
    "communication": "kernels that communicate",
    "other": "other kernels",
}


def check(known: Known) -> Iterator[Finding]:
    """Every check of these claims."""
    table = known.claims.table
    if table is None or not table.rows:
        return
    yield from _times(table)
    yield from _calls(table)
    yield from _percentages(table)
    for row in table.rows:
        if row.members:
            yield from _members(row)
            yield from _natures(row)


def total_of(rows: Sequence[Row]) -> Interval:
    """Seconds of all rows."""
    return Interval(sum(row.time.interval.low for row in rows), sum(row.time.interval.high for row in rows))


def as_said(row: Row) -> str:
    """A row in one line."""
    parts = [row.time.text, plural(row.calls, "call") if row.calls is not None else ""]
    parts.append(row.percent.text if row.percent else "")
    return f"{row.name}: {', '.join(part for part in parts if part)}"


def _times(table: Table) -> Iterator[Finding]:
    summed = total_of(table.rows)
    text = f"{len(table.rows)} rows add up to {seconds(summed.middle, 5)}"
    if table.total is None:
        yield undecided("sum of times", "the rows' times", f"{text}; no total is given")
    elif summed.meets(table.total.time.interval):
        yield agrees("sum of times", table.total.said, f"{table.total.said}: {text}")
    else:
        yield contradicts("sum of times", table.total.said, text)


def _calls(table: Table) -> Iterator[Finding]:
    counted = [row.calls for row in table.rows if row.calls is not None]
    if not counted:
        return
    text = f"{len(counted)} rows add up to {plural(sum(counted), 'call')}"
    if table.calls is None:
        yield undecided("sum of calls", "the rows' calls", f"{text}; no total is given")
    elif sum(counted) == table.calls.count and len(counted) == len(table.rows):
        yield agrees("sum of calls", table.calls.said, f"{table.calls.said}: {text}")
    else:
        yield contradicts("sum of calls", table.calls.said, text)


def _percentages(table: Table) -> Iterator[Finding]:
    total = table.total.time.interval if table.total else total_of(table.rows)
    said = [row for row in table.rows if row.percent is not None]
    if not said:
        return
    wrong = False
    for row in said:
        share = row.time.interval.over(total)
        if row.percent is not None and not share.meets(row.percent.interval):
            wrong = True
            yield contradicts(f"percentage of {row.name}", as_said(row), f"{percent(share.middle)} of the total")
    if not wrong:
        text = f"each is its time over {seconds(total.middle, 5)}, as far as its decimals go"
        yield agrees("percentages", f"percentages of {len(said)} rows", text)
    yield from _sum_of_percentages(said, whole=len(said) == len(table.rows))


def _sum_of_percentages(rows: Sequence[Row], *, whole: bool) -> Iterator[Finding]:
    figures = [row.percent.interval for row in rows if row.percent is not None]
    summed = Interval(sum(one.low for one in figures), sum(one.high for one in figures))
    said = f"the percentages add up to {summed.middle * 100:.4g}%"
    if summed.meets(exactly(1.0)):
        text = f"{said}: within the rounding of {len(figures)} figures, no error"
        yield agrees("sum of percentages", said, text)
    elif summed.low > 1:
        yield contradicts("sum of percentages", said, f"more than 100%, beyond the rounding of {len(figures)} figures")
    elif whole:
        yield undecided("sum of percentages", said, f"{said}: less than 100%; are rows left out?")


def _members(row: Row) -> Iterator[Finding]:
    calls = sum(member.calls for member in row.members)
    words = " + ".join(f"{member.calls} {member.name}" for member in row.members)
    if row.calls is not None:
        text = f"{words} = {plural(calls, 'call')}"
        rule = f"members of {row.name}"
        same = calls == row.calls
        yield agrees(rule, as_said(row), f"{as_said(row)}: {text}") if same else contradicts(rule, as_said(row), text)
    times = [member.time.interval for member in row.members if member.time is not None]
    if len(times) == len(row.members):
        summed = Interval(sum(time.low for time in times), sum(time.high for time in times))
        rule, text = f"time of the members of {row.name}", f"{seconds(summed.middle)} together"
        same = summed.meets(row.time.interval)
        yield agrees(rule, as_said(row), f"{as_said(row)}: {text}") if same else contradicts(rule, as_said(row), text)


def _natures(row: Row) -> Iterator[Finding]:
    if row.nature is None:
        return
    others = [member for member in row.members if nature_of(member) != row.nature]
    rule, said = f"nature of {row.name}", f"{as_said(row)}, {NATURES[row.nature]}"
    if not others:
        yield agrees(rule, said, f"{said}: all of them")
        return
    found: dict[str, list[Member]] = {}
    for member in row.members:
        found.setdefault(nature_of(member), []).append(member)
    words = [
        f"{sum(one.calls for one in members)} {NATURES[nature]}{_names(members)}" for nature, members in found.items()
    ]
    yield contradicts(rule, said, " + ".join(words))


def _names(members: Sequence[Member]) -> str:
    return f" ({', '.join(one.name + (', ' + one.time.text if one.time else '') for one in members)})"


def nature_of(member: Member) -> str:
    """As the document says, else by the rules for names of kernels."""
    if member.nature is not None:
        return member.nature
    from pytest_attnperf.tools.profilers.kernel_families import Rules

    return Rules.default().family(member.name, "kernel").nature
