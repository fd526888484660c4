"""What failed or is unresolved, of all suites and devices of a report, worst first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.reports.run.joined import Joined
from pytest_attnperf.reports.run.overview import is_new, rank
from pytest_attnperf.reports.run.tables import headings
from pytest_attnperf.reports.text.colour import PLAIN, Ink
from pytest_attnperf.reports.text.figures import ABSENT, format_change, format_interval, format_ms
from pytest_attnperf.reports.text.grid import Column, Group, Row, grid

MOST = 20
NAME_SHARE = 0.6
"""Here the name holds the workload too."""

LEAST_BAD = rank(Verdict.NO_BASELINE)
COLUMNS = (
    Column("verdict", align="left"),
    Column("ms", rank=2),
    Column("change", rank=1),
    Column("95 %", rank=3),
)


@dataclass(frozen=True)
class _Bad:
    verdict: Verdict
    fails: bool
    key: CaseKey
    device: str
    median_us: float | None = None
    ratio: float | None = None
    interval: tuple[float, float] | None = None

    @property
    def order(self) -> tuple[bool, int, float, str]:
        """Failing before passing, then by verdict, then the slowest; a ratio that is no number comes last."""
        ratio = self.ratio if self.ratio is not None and math.isfinite(self.ratio) else 0.0
        return not self.fails, rank(self.verdict), -ratio, str(self.key)


def worst_table(joined: Joined, *, width: int, ink: Ink = PLAIN, most: int = MOST) -> str:
    """At most so many rows and how many more there are; '' where nothing failed and everything was resolved."""
    bad = sorted(_bad(joined), key=lambda one: one.order)
    names = _names(bad, several=len(joined.devices) > 1)
    rows = tuple(
        Row(
            name,
            (
                one.verdict.value,
                format_ms(one.median_us),
                format_change(one.ratio),
                format_interval(one.interval).removeprefix("95 %: ") or ABSENT,
            ),
            one.verdict,
        )
        for name, one in list(zip(names, bad, strict=True))[:most]
    )
    table = grid([Group("", rows)], COLUMNS, corner="worst first", width=width, ink=ink, share=NAME_SHARE)
    return "\n".join([table, f"... and {len(bad) - most} more"]) if len(bad) > most else table


def _bad(joined: Joined) -> list[_Bad]:
    cases = [
        _Bad(
            shown.case.verdict,
            shown.case.fails,
            shown.case.key,
            shown.device,
            shown.case.median_us,
            shown.case.ratio,
            shown.case.interval,
        )
        for shown in joined.cases
        if not shown.case.quarantined and not is_new(shown.case)
    ]
    code = [_Bad(result.verdict, result.fails, result.key, "") for result in joined.code]
    return [one for one in [*cases, *code] if one.fails or rank(one.verdict) <= LEAST_BAD]


def _names(bad: Sequence[_Bad], *, several: bool) -> list[str]:
    """'backend/label workload', with the suite and the device where there are several of them."""
    suites = dict.fromkeys(one.key.suite for one in bad)
    called = {suite: headings(one.key.workload for one in bad if one.key.suite == suite) for suite in suites}
    names = []
    for one in bad:
        key = one.key
        case = f"{key.backend}{f'/{key.label}' if key.label else ''} {called[key.suite][key.workload]}"
        before = [one.device] if several and one.device else []
        names.append(" ".join([*before, f"{key.suite}/{case}" if len(suites) > 1 else case]))
    return names
