"""Runs as text: sections per device and suite, compiled kernels, and closing lines, in four levels of detail."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.code import CODE_SUITE
from pytest_attnperf.records.notes import NoteKind, filter_notes
from pytest_attnperf.reports.run.code_objects import code_line, code_table
from pytest_attnperf.reports.run.joined import Joined
from pytest_attnperf.reports.run.overview import STORED, is_new, rank_verdict, verdict_line
from pytest_attnperf.reports.run.tables import suite_table
from pytest_attnperf.reports.run.terminal import TEXT_LIMIT, closing_lines
from pytest_attnperf.reports.text.colour import PLAIN, Ink
from pytest_attnperf.reports.text.figures import ABSENT, format_change, format_interval, one_line
from pytest_attnperf.reports.text.grid import GridColumn, GridGroup, GridRow, render_grid
from pytest_attnperf.reports.text.text_width import wrap_text
from pytest_attnperf.reports.text.time_cells import TimeCell
from pytest_attnperf.results import CaseResult, RunResult

MOST_ROWS = 200
"""Longer tables leave out cases without a change, unless they are verbose."""

LONG = 40
"""With more rows than this, a table of the worst comes before the others."""

MOST = 20
LEAST_BAD = rank_verdict(Verdict.NO_BASELINE)
COLUMNS = (
    GridColumn("verdict", align="left"),
    GridColumn("time", rank=2),
    GridColumn("change", rank=1),
    GridColumn("95 %", rank=3),
)


@dataclass(frozen=True)
class SuiteSection:
    """One suite on one device ('' if nothing was measured): all its cases, its table as text, and what that's columns
    mean."""

    suite: str
    device: str
    cases: tuple[CaseResult, ...]
    text: str
    legend: tuple[str, ...] = ()


def run_text(joined: Joined, *, width: int, ink: Ink = PLAIN, verbosity: int = 0) -> str:
    """Returns the whole report of the runs as text of at most `width` columns.

    verbosity   as pytest's: -2 one line per run; -1 failures, unresolved cases and the closing lines; 0 tables;
                1 tables with every case, with intervals before other figures, and the notes of the runs
    """
    if verbosity <= -2:
        return "\n".join(format_run_line(run, source) for run, source in _list_runs(joined))
    worst = worst_table(joined, width=width, ink=ink)
    if verbosity < 0:
        blocks = [worst]
    else:
        tables = list(suite_sections(joined, width=width, ink=ink, verbose=verbosity > 0))
        blocks = [worst if is_long(joined) else ""]
        several = len(joined.devices) > 1
        blocks += [f"{ink.bold(section_title(part, several=several))}\n{part.text}" for part in tables]
        code_legend: list[str] = []
        if joined.code:
            blocks.append(
                f"{ink.bold(CODE_SUITE)}\n{code_table(joined.code, width=width, ink=ink, legend=code_legend)}"
            )
        blocks.append("\n".join([*list_legend(tables), *code_legend]))
    notes = dict.fromkeys(note for run in joined.runs for note in run.notes if run.mode == STORED or verbosity > 0)
    noted = [one_line(note, TEXT_LIMIT) for note in (*joined.notes, *notes)]
    blocks.append("\n".join(line for note in noted for line in wrap_text(note, width)))
    blocks += ["\n".join(closing_lines(run, source, ink=ink)) for run, source in _list_runs(joined)]
    return "\n\n".join(filter(None, blocks))


def format_run_line(run: RunResult, source: str = "") -> str:
    """Returns a run's counts and slowest case in one line, after its file's name `source` if that is given."""
    lines = [verdict_line(run)] if run.cases or not run.code else []
    lines += [code_line(run.code)] if run.code else []
    return one_line(": ".join(filter(None, [one_line(source), "; ".join(lines)])), TEXT_LIMIT)


def is_long(joined: Joined) -> bool:
    """Returns whether there are more than LONG cases and kernels: then the worst rows come before the tables."""
    return len(joined.cases) + len(joined.code) > LONG


def suite_sections(joined: Joined, *, width: int, ink: Ink = PLAIN, verbose: bool = False) -> Iterator[SuiteSection]:
    """Yields a section with a table per device and suite: times of two devices cannot be compared. Cases that were only
    proven, or unchanged, are counted below the table."""
    parts: dict[tuple[str, str], list[CaseResult]] = {}
    for device in dict.fromkeys(shown.device for shown in joined.cases):
        for shown in joined.cases:
            if shown.device == device:
                parts.setdefault((device, shown.case.key.suite), []).append(shown.case)
    for (device, suite), cases in parts.items():
        timed = [case for case in cases if not _only_proven(case) and not _is_unchanged(case)]
        most_rows, legend = None if verbose else MOST_ROWS, list[str]()
        table = suite_table(timed, width=width, ink=ink, verbose=verbose, most_rows=most_rows, legend=legend)
        proven, unchanged = sum(map(_only_proven, cases)), sum(map(_is_unchanged, cases))
        said = [f"{proven} cases right, and not timed: their tests have timed=False"] if proven else []
        said += [f"{unchanged} cases right, and not timed: unchanged since their baseline"] if unchanged else []
        yield SuiteSection(suite, device, tuple(cases), "\n".join(filter(None, [table, *said])), tuple(legend))


def list_legend(sections: Iterable[SuiteSection]) -> list[str]:
    """Returns a line on each column of these tables whose header needs one; each once."""
    return list(dict.fromkeys(line for part in sections for line in part.legend))


def section_title(part: SuiteSection, *, several: bool) -> str:
    """Returns the suite's name, 'prefill', or with `several` devices 'prefill on sm_90/h200'."""
    return one_line(f"{part.suite} on {part.device}" if several and part.device else part.suite)


def _list_runs(joined: Joined) -> Iterator[tuple[RunResult, str]]:
    return zip(joined.runs, joined.sources, strict=True)


def _only_proven(case: CaseResult) -> bool:
    """Returns whether a case is RIGHT, does not fail, and was not to be timed: its test has timed=False."""
    return case.verdict is Verdict.RIGHT and not case.fails and bool(filter_notes(case.notes, NoteKind.PROVEN_ONLY))


def _is_unchanged(case: CaseResult) -> bool:
    """Returns whether a case was not timed, because it runs what its baseline ran, and does not fail for another
    reason."""
    return case.unchanged and not case.fails


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
        """Sort key: failing first, then by verdict, then the largest ratio (one that is not finite counts as 0), then
        name."""
        ratio = self.ratio if self.ratio is not None and math.isfinite(self.ratio) else 0.0
        return not self.fails, rank_verdict(self.verdict), -ratio, str(self.key)


def worst_table(joined: Joined, *, width: int, ink: Ink = PLAIN) -> str:
    """Returns a table of the MOST worst failed or unresolved results, and the number of others; '' if there are
    none."""
    bad = sorted(_collect_bad(joined), key=lambda one: one.order)
    several = len(joined.devices) > 1
    rows = tuple(
        GridRow(
            f"{one.device} {one.key}".strip() if several else str(one.key),
            (
                one.verdict.value,
                TimeCell(one.median_us),
                format_change(one.ratio),
                format_interval(one.interval).removeprefix("95 %: ") or ABSENT,
            ),
            one.verdict,
        )
        for one in bad[:MOST]
    )
    table = render_grid([GridGroup("", rows)], COLUMNS, corner="worst first", width=width, ink=ink)
    return "\n".join([table, f"... and {len(bad) - MOST} more"]) if len(bad) > MOST else table


def _collect_bad(joined: Joined) -> list[_Bad]:
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
    return [one for one in [*cases, *code] if one.fails or rank_verdict(one.verdict) <= LEAST_BAD]
