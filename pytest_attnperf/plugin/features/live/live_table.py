"""A table of the cases under way and of those that ended last, below pytest's output: with -v, if rich is installed.

What happens to cases comes as events of `workers.doing`, from this process. The worker that measures sends nothing for
it, so its blocks appear when its answer comes: those of a process together, those of pairs quad by quad. `CaseRows`
knows the table; only `render_table` needs rich.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import itertools
import statistics
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_attnperf.plugin.config import is_xdist_controller
from pytest_attnperf.plugin.features.feature import Feature
from pytest_attnperf.plugin.features.live.live_line import find_line
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.time_units import format_time
from pytest_attnperf.reports.run.overview import format_verdict_counts
from pytest_attnperf.reports.text import colour
from pytest_attnperf.reports.text.figures import format_change
from pytest_attnperf.reports.text.text_width import both_ends, cut_text
from pytest_attnperf.results import CaseResult
from pytest_attnperf.workers.doing import DOING, BlocksTimed, CaseEvent, Unit, UnitStep

if TYPE_CHECKING:
    from pytest_attnperf.plugin.features.live.progress import Progress
    from pytest_attnperf.plugin.features.on import FeatureContext
    from pytest_attnperf.records.code import CodeResult

BARS = "▁▂▃▄▅▆▇█"
BAR_CELLS = 16
"""Most cells of a sparkline: more blocks than these share cells, by their mean."""

WIDE = 96
"""Cells from which a terminal has room for whole sparklines; narrower ones show every second cell."""

FLAT = 0.05
"""A sparkline spans at least this part of its median: noise of a per mille must look flat."""

MOST_ROWS = 10
"""Most cases that are shown; fewer where the terminal is lower. At least one that has ended is among them."""

KEPT_BLOCKS = 2000
TICK_S, ENDED_S, RENDER_S = 0.25, 0.5, 1.0
"""Seconds after which the table is drawn again below other output, and after which its text is made anew: sooner if a
case has ended. Making it takes 4 ms, and the controller shares its cores with the workers."""

STATE_CELLS, TIME_CELLS = 30, 9

GAP = 2
NAME_LEAST = 16
"""Where a name has less, the last columns are left out."""

STATES = {
    "open": "building",
    "check": "proving",
    "block": "measuring",
    "rotate": "changing inputs",
    "stages": "measuring stages",
    "profile": "profiling",
    "turns": "measuring",
    "finish": "re-proving",
    "close": "measured",
}
"""Request to a worker -> state of its case."""

COUNTED = {Unit.RECORDING: "process", Unit.SECOND_LOOK: "second look", Unit.PAIR: "pair"}

RICH_STYLES = {colour.RED: "bold red", colour.GREEN: "green", colour.YELLOW: "yellow", colour.DIM: "dim"}
"""Style of the terminal -> the same one in rich's words."""


@dataclass(frozen=True)
class CaseJudged:
    """A case has its result."""

    result: CaseResult


TableEvent = CaseEvent | CaseJudged


@dataclass(frozen=True)
class TableRow:
    """One case as the table shows it, in words. `name` has no suite, which pytest's own line shows. `state` is the
    verdict with its change once the case is judged, and `verdict` is None before. `bars` is a sparkline of its
    blocks."""

    name: str
    state: str
    time: str
    bars: str
    verdict: Verdict | None = None


@dataclass
class _CaseState:
    changed_s: float
    operation: str = "open"
    step: UnitStep | None = None
    block_us: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_BLOCKS))


class CaseRows:
    """What the table shows, from events and the times at which they came (seconds of any clock)."""

    def __init__(self) -> None:
        self._open: dict[CaseKey, _CaseState] = {}
        self._ended: deque[TableRow] = deque(maxlen=MOST_ROWS)
        self._verdicts: Counter[Verdict] = Counter()

    def apply(self, event: TableEvent, now_s: float) -> None:
        """Takes an event into account that came at `now_s`."""
        if isinstance(event, CaseJudged):
            self._end_case(event.result)
            return
        state = self._open.setdefault(event.key, _CaseState(now_s))
        state.changed_s = now_s
        if isinstance(event, BlocksTimed):
            state.block_us.extend(event.block_us)
        else:
            state.operation, state.step = event.operation, event.step

    def list_rows(self, most: int) -> list[TableRow]:
        """Returns at most `most` rows: those that ended last, in their order, then those under way. Of these, the ones
        that changed last are kept; a budget's run looks at hundreds before it judges the first."""
        if most < 1:
            return []
        kept = most - 1 if self._ended and most > 1 else most
        latest = sorted(self._open.items(), key=lambda item: -item[1].changed_s)[:kept]
        shown = {key for key, _ in latest}
        rows = [_make_open_row(key, state) for key, state in self._open.items() if key in shown]
        return [*list(self._ended)[max(0, len(self._ended) - (most - len(rows))) :], *rows][:most]

    def format_counts(self) -> str:
        """Returns the number of each verdict so far, worst first: '1 slower, 11 same'; '' before the first."""
        return format_verdict_counts(self._verdicts.elements()) if self._verdicts else ""

    def _end_case(self, result: CaseResult) -> None:
        state = self._open.pop(result.key, None)
        self._verdicts[result.verdict] += 1
        said = result.verdict.value if result.ratio is None else f"{result.verdict.value} {format_change(result.ratio)}"
        time_text = format_time(result.median_us)
        bars = "" if state is None else draw_bars(state.block_us)
        self._ended.append(TableRow(both_ends(result.key.entry), said, time_text, bars, result.verdict))


def _make_open_row(key: CaseKey, state: _CaseState) -> TableRow:
    word, step = STATES.get(state.operation, state.operation), state.step
    where = "" if step is None else f", {COUNTED[step.unit]} {step.number} of {step.of}"
    median_us = statistics.median(state.block_us) if state.block_us else None
    return TableRow(both_ends(key.entry), f"{word}{where}", format_time(median_us), draw_bars(state.block_us))


def draw_bars(values: Iterable[float]) -> str:
    """Returns a sparkline of the values in order, at most BAR_CELLS cells; '' for none."""
    known = list(values)
    if not known:
        return ""
    cells = min(BAR_CELLS, len(known))
    edges = [len(known) * cell // cells for cell in range(cells + 1)]
    means = [statistics.fmean(known[low:high]) for low, high in itertools.pairwise(edges)]
    middle, spread = statistics.median(means), max(means) - min(means)
    span = max(spread, FLAT * abs(middle)) or 1.0
    low = min(means) if span == spread else middle - span / 2
    return "".join(BARS[min(len(BARS) - 1, int((mean - low) / span * len(BARS)))] for mean in means)


def render_table(rows: Sequence[TableRow], width: int, *, coloured: bool) -> list[str]:
    """Returns the rows as lines of a table below a heading, at most `width` cells wide, with escape sequences if
    `coloured`."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    step = 1 if width >= WIDE else 2
    others = [("state", STATE_CELLS), ("time", TIME_CELLS), ("blocks", BAR_CELLS // step)]
    while others and width - sum(cells + GAP for _, cells in others) < NAME_LEAST:
        del others[-1]
    room = width - sum(cells + GAP for _, cells in others)
    for header, cells in (("case", room), *others):
        table.add_column(header, width=cells, no_wrap=True)
    for row in rows:
        style = "" if row.verdict is None else RICH_STYLES.get(colour.STYLES.get(row.verdict, ""), "")
        made = (Text(cut_text(row.name, room)), Text(row.state, style=style), Text(row.time), Text(row.bars[::step]))
        table.add_row(*made[: 1 + len(others)])
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=True,
        color_system="standard" if coloured else None,
        legacy_windows=False,
    )
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().rstrip("\n").split("\n")]


class LiveTable(Feature):
    """Observes the cases of one run and shows them on its live line, above what the run says of itself."""

    def __init__(
        self, progress: Progress, draw: Callable[[Sequence[TableRow], int], list[str]], clock: Callable[[], float]
    ) -> None:
        """`draw(rows, width)` returns the lines of the table."""
        self.rows = CaseRows()
        self._progress, self._draw, self._clock = progress, draw, clock
        self._events: deque[tuple[TableEvent, float]] = deque()
        self._text, self._made_s, self._size, self._has_ended = "", float("-inf"), (0, 0), False

    def observe(self, event: CaseEvent) -> None:
        """Keeps an event for the thread that draws."""
        self._events.append((event, self._clock()))

    def after_case(self, result: CaseResult | CodeResult) -> None:
        """Keeps the result of a case for the thread that draws."""
        if isinstance(result, CaseResult):
            self._events.append((CaseJudged(result), self._clock()))

    def after_run(self, _ended: object) -> None:
        """Ends observing."""
        DOING.remove_observer(self)

    def format_screen(self, width: int, height: int) -> str:
        """Returns the table, counts of verdicts and the run's status, in at most `height` lines of `width` cells; only
        the status while no case is judged. The text is made anew every RENDER_S seconds, and when a case has ended."""
        now_s = self._clock()
        self._has_ended |= self._take_events()
        if now_s - self._made_s < (ENDED_S if self._has_ended else RENDER_S) and self._size == (width, height):
            return self._text
        status, counts = self._progress.format_status(width), self.rows.format_counts()
        rows = self.rows.list_rows(min(MOST_ROWS, height // 2 - 3))
        if self._progress.phase or not rows:
            self._text = status
        else:
            below = [cut_text(f"so far: {counts}", width)] if counts else []
            self._text = "\n".join([*self._draw(rows, width), *below, status])
        self._made_s, self._size, self._has_ended = now_s, (width, height), False
        return self._text

    def _take_events(self) -> bool:
        """Applies the events that came; returns whether a case has ended."""
        ended = False
        while self._events:
            event, at_s = self._events.popleft()
            self.rows.apply(event, at_s)
            ended |= isinstance(event, CaseJudged)
        return ended


def make_feature(given: FeatureContext) -> LiveTable | None:
    """Returns the feature that shows the table; None without rich or a terminal of UTF-8 that only pytest writes to,
    and where cases are measured in this process or in workers of xdist."""
    line, progress = find_line(given.config), given.progress
    here = given.asked.in_process or is_xdist_controller(given.config)
    encoding = (getattr(sys.stdout, "encoding", "") or "").lower().replace("-", "")
    if line is None or progress is None or here or encoding != "utf8" or importlib.util.find_spec("rich") is None:
        return None
    coloured = bool(given.config.get_terminal_writer().hasmarkup)
    table = LiveTable(progress, functools.partial(render_table, coloured=coloured), time.monotonic)
    DOING.add_observer(table)
    given.config.add_cleanup(lambda: DOING.remove_observer(table))
    line.says, line.every_s = table.format_screen, TICK_S
    return table
