"""The table of cases under way: its state by a clock that the test turns, then whole runs on a terminal."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.plugin.features.live import live_table
from pytest_attnperf.plugin.features.live.live_line import LINE
from pytest_attnperf.plugin.features.live.live_table import (
    BAR_CELLS,
    COUNTED,
    MOST_ROWS,
    RICH_STYLES,
    STATES,
    CaseJudged,
    CaseRows,
    LiveTable,
    TableRow,
    draw_bars,
    make_feature,
    render_table,
)
from pytest_attnperf.plugin.features.on import FeatureContext
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.reports.text.colour import STYLES
from pytest_attnperf.reports.text.text_width import display_width
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.settings import RunMode
from pytest_attnperf.testing.project import FakeProject
from pytest_attnperf.workers.doing import DOING, BlocksTimed, CaseAsked, Unit, UnitStep
from tests.plugin.features.live.watched_runs import read_until, start_on_terminal

HOSTILE = "a\x1b[2J\nb\u202e[bold red]\ud800" + "全" * 300


def key(name: object = "a") -> CaseKey:
    """A case of this backend."""
    return CaseKey("prefill", str(name), "prefill-b1-s64")


def judged(name: object = "a", verdict: Verdict = Verdict.SAME, **fields: Any) -> CaseJudged:
    """The end of a case."""
    return CaseJudged(CaseResult(key(name), "test.py::test", verdict, "", **fields))


def states(rows: CaseRows, most: int = MOST_ROWS) -> list[tuple[str, str]]:
    """(backend, state) of each row."""
    return [(row.name.split("/")[0], row.state) for row in rows.list_rows(most)]


def test_a_case_from_its_proof_to_its_verdict() -> None:
    """The row says what is done and in which process of how many; time and sparkline come with the first blocks, and
    stay when the verdict takes the place of the state."""
    rows = CaseRows()
    seen = []
    steps = [UnitStep(Unit.RECORDING, number, 7, 0.0) for number in (3, 4)]
    events = [
        CaseAsked(key(), "open", steps[0]),
        CaseAsked(key(), "check", steps[0]),
        CaseAsked(key(), "block", steps[0]),
        BlocksTimed(key(), (24.0, 26.0, 25.0)),
        CaseAsked(key(), "finish", steps[0]),
        CaseAsked(key(), "open", steps[1]),
        judged(verdict=Verdict.SLOWER, ratio=1.061, median_us=26.1, fails=True),
    ]
    for now_s, event in enumerate(events):
        rows.apply(event, float(now_s))
        (row,) = rows.list_rows(5)
        seen.append((row.state, row.time, row.bars, row.verdict))
    assert seen == [
        ("building, process 3 of 7", "-", "", None),
        ("proving, process 3 of 7", "-", "", None),
        ("measuring, process 3 of 7", "-", "", None),
        ("measuring, process 3 of 7", "25.00 us", "▁█▅", None),
        ("re-proving, process 3 of 7", "25.00 us", "▁█▅", None),
        ("building, process 4 of 7", "25.00 us", "▁█▅", None),
        ("SLOWER +6.1 %", "26.10 us", "▁█▅", Verdict.SLOWER),
    ]
    assert rows.format_counts() == "1 slower"


def test_what_ended_last_stands_above_what_is_under_way() -> None:
    """In the order of their ends; with little room the oldest go, but one that has ended stays."""
    rows = CaseRows()
    for number in range(5):
        rows.apply(CaseAsked(key(number), "check"), float(number))
        if number < 3:
            rows.apply(judged(number), number + 0.5)
    ended = [(str(number), "SAME") for number in range(3)]
    under_way = [("3", "proving"), ("4", "proving")]
    assert states(rows) == [*ended, *under_way]
    assert states(rows, 4) == [*ended[1:], *under_way]
    assert states(rows, 2) == [ended[2], under_way[1]]
    assert states(rows, 1) == [under_way[1]]
    assert states(rows, 0) == []
    assert rows.format_counts() == "3 same"


def test_a_budget_looks_at_many_cases_before_it_judges_one() -> None:
    """Of hundreds under way, the rows are those that changed last; 10,000 cases take no noticeable time."""
    rows, began = CaseRows(), time.process_time()
    for number in range(10_000):
        rows.apply(CaseAsked(key(number), "block"), float(number))
        rows.apply(BlocksTimed(key(number), (1.0, 2.0)), number + 0.5)
    assert states(rows, 2) == [("9998", "measuring"), ("9999", "measuring")]
    rows.apply(CaseAsked(key(7), "block", UnitStep(Unit.PAIR, 2, 8, 0.0)), 2e4)
    assert states(rows, 2) == [("7", "measuring, pair 2 of 8"), ("9999", "measuring")]
    for number in range(10_000):
        rows.apply(judged(number), 3e4)
    assert len(rows.list_rows(100)) == MOST_ROWS
    assert time.process_time() - began < 3


def test_a_case_that_no_worker_saw_has_a_row() -> None:
    """One that was skipped or taken over from an interrupted run: without time and sparkline."""
    rows = CaseRows()
    rows.apply(judged(verdict=Verdict.UNSUPPORTED), 1.0)
    assert rows.list_rows(3) == [TableRow("a/prefill-b1-s64", "UNSUPPORTED", "-", "", Verdict.UNSUPPORTED)]


def test_every_state_has_words_and_fits() -> None:
    """Whatever a case's worker is asked for is said in words; with any count of a second look it fits its column."""
    assert set(COUNTED) == set(Unit)
    common = {"open", "check", "block", "turns", "finish", "close"}
    assert common < set(STATES)
    for name in common:
        assert len(f"{STATES[name]}, second look 3 of 7") <= 30
    assert set(STYLES.values()) == set(RICH_STYLES)


@pytest.mark.parametrize(
    ("values", "bars"),
    [
        ([], ""),
        ([5.0], "▅"),
        ([0.0, 0.0], "▅▅"),
        ([100.0, 100.1, 99.9, 100.0], "▅▅▄▅"),
        ([1, 2, 3, 4, 5, 6, 7, 8], "▁▂▃▄▅▆▇█"),
        ([100.0, 100.0, 200.0], "▁▁█"),
        ([1e-9, 1e12], "▁█"),
        (range(1000), "▁▁▂▂▃▃▄▄▅▅▆▆▇▇██"),
    ],
)
def test_sparklines(values: Sequence[float], bars: str) -> None:
    """Noise of a per mille is flat, a jump is not, and many blocks share cells."""
    assert draw_bars(values) == bars
    assert len(bars) <= BAR_CELLS


ROWS = [
    TableRow("triton.flash/prefill-b4-s512-h8-d256-f16-causal", "SLOWER +6.1 %", "26.10 us", "▁█", Verdict.SLOWER),
    TableRow("triton.flash/prefill-b4-s512-h8-d128-f16-causal", "proving", "-", ""),
]


def test_the_table_as_drawn() -> None:
    """Names lose their middle, a narrow terminal loses the last columns, and colours are those of the verdicts."""
    pytest.importorskip("rich")
    assert render_table(ROWS, 100, coloured=False) == [
        "case                                     state                           time       blocks",
        "triton.flash/prefi...h8-d256-f16-causal  SLOWER +6.1 %                   26.10 us   ▁█",
        "triton.flash/prefi...h8-d128-f16-causal  proving                         -",
    ]
    assert render_table(ROWS, 80, coloured=False)[1] == (
        "triton.flash...6-f16-causal  SLOWER +6.1 %                   26.10 us   ▁"
    )
    assert render_table(ROWS, 20, coloured=False)[0] == "case"
    coloured = render_table(ROWS, 90, coloured=True)
    assert "\x1b[1;31mSLOWER +6.1 %" in coloured[1]
    assert "\x1b[" not in coloured[2]


@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_hostile_names_are_only_shown(width: int) -> None:
    """No escape sequence, line break or markup of a name acts, and no line is wider than the terminal."""
    pytest.importorskip("rich")
    rows = CaseRows()
    rows.apply(CaseAsked(CaseKey(HOSTILE, HOSTILE, HOSTILE, HOSTILE), "check"), 1.0)
    rows.apply(BlocksTimed(CaseKey(HOSTILE, HOSTILE, HOSTILE, HOSTILE), (1.0,)), 1.0)
    rows.apply(judged(HOSTILE), 1.0)
    lines = render_table(rows.list_rows(5), width, coloured=False)
    assert len(lines) == 3
    for line in lines:
        assert display_width(line) <= width
        assert not set("\x1b\n\u202e") & set(line)
    assert width < 200 or "[bold red]" in lines[2]


class Screen:
    """A table on a run whose clock the test turns; `drawn` counts how often its text was made."""

    def __init__(self) -> None:
        self.now, self.drawn = 100.0, 0
        self.progress: Any = SimpleNamespace(phase="", format_status=lambda width: "attnperf: case 1 of 2"[:width])
        self.table = LiveTable(self.progress, self.draw, lambda: self.now)

    def draw(self, rows: Sequence[TableRow], _width: int) -> list[str]:
        """A heading and a line per row."""
        self.drawn += 1
        return ["HEAD", *(f"{row.name}: {row.state}" for row in rows)]

    def text(self, height: int = 40) -> list[str]:
        """What stands below pytest's output."""
        return self.table.format_screen(80, height).split("\n")


def test_the_screen_has_table_counts_and_status() -> None:
    """Before the first case, and when the run ends, only the status; nothing of it is higher than the terminal."""
    screen = Screen()
    assert screen.text() == ["attnperf: case 1 of 2"]
    screen.table.observe(CaseAsked(key(), "check"))
    screen.table.after_case(CaseResult(key("b"), "n", Verdict.SAME, ""))
    screen.now += 1
    assert screen.text() == [
        *("HEAD", "b/prefill-b1-s64: SAME", "a/prefill-b1-s64: proving"),
        *("so far: 1 same", "attnperf: case 1 of 2"),
    ]
    for height in range(1, 30):
        assert len(screen.text(height)) <= height
    screen.progress.phase = "ending the run"
    screen.now += 1
    assert screen.text() == ["attnperf: case 1 of 2"]


def test_the_text_is_made_once_a_second() -> None:
    """However often it is asked for; after the end of a case at most twice. What comes meanwhile is not lost."""
    screen = Screen()
    screen.table.observe(CaseAsked(key(), "open"))
    for _ in range(40):
        screen.text()
        screen.table.observe(CaseAsked(key(), "check"))
        screen.now += 0.1
    assert screen.drawn == 4
    assert screen.text()[1].endswith(": proving")
    before = screen.drawn
    for number in range(40):
        screen.table.after_case(CaseResult(key(number), "n", Verdict.SAME, ""))
        screen.now += 0.1
        screen.text()
    assert screen.drawn - before <= 8
    screen.now += 1
    assert "40 same" in screen.text()[-2]


def make_given(monkeypatch: pytest.MonkeyPatch, lacks: str) -> Any:
    """What `make_feature` gets on a terminal where the table is wanted, but for what is lacking."""
    stash = pytest.Stash()
    if lacks != "terminal":
        line: Any = SimpleNamespace(says=None, every_s=1.0)
        stash[LINE] = line
    encoding = "latin-1" if lacks == "utf-8" else "UTF-8"
    monkeypatch.setattr("sys.stdout", SimpleNamespace(encoding=encoding))
    found = None if lacks == "rich" else object()
    monkeypatch.setattr(live_table.importlib.util, "find_spec", lambda name: found)
    config = SimpleNamespace(
        stash=stash,
        getoption=lambda name, default: "load" if lacks == "no xdist" else default,
        get_terminal_writer=lambda: SimpleNamespace(hasmarkup=True),
        add_cleanup=lambda done: None,
    )
    asked = SimpleNamespace(in_process=lacks == "workers")
    return SimpleNamespace(config=config, asked=asked, progress=Screen().progress)


@pytest.mark.parametrize("lacks", ["terminal", "rich", "utf-8", "no xdist", "workers"])
def test_where_there_is_no_table(monkeypatch: pytest.MonkeyPatch, lacks: str) -> None:
    """In pipes, without rich, where a terminal could not show it, with xdist, and in a process that measures."""
    given = make_given(monkeypatch, lacks)
    assert make_feature(given) is None


def test_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the place of the line, is drawn sooner below other output, and observes until the run has ended."""
    given = make_given(monkeypatch, "nothing")
    table = make_feature(given)
    assert table is not None
    line = given.config.stash[LINE]
    assert (line.says, line.every_s < 1.0) == (table.format_screen, True)
    DOING.publish_event(CaseAsked(key(), "open"))
    table.after_run(None)
    DOING.publish_event(CaseAsked(key("b"), "open"))
    table.format_screen(80, 40)
    assert states(table.rows) == [("a", "building")]


@pytest.mark.parametrize(
    ("verbosity", "mode", "ci", "watched"),
    [
        (1, RunMode.GATE, "", True),
        (2, RunMode.UPDATE, "", True),
        (0, RunMode.GATE, "", False),
        (-1, RunMode.GATE, "", False),
        (1, RunMode.CHECK, "", False),
        (1, RunMode.GATE, "true", False),
    ],
)
def test_who_watches(monkeypatch: pytest.MonkeyPatch, verbosity: int, mode: RunMode, ci: str, watched: bool) -> None:
    """Who asks with -v, for a run that times, and is no CI system: its terminal, if it has one, is a log."""
    monkeypatch.setenv("CI", ci)
    config: Any = SimpleNamespace(get_verbosity=lambda: verbosity)
    session: Any = SimpleNamespace(bench=SimpleNamespace(settings=SimpleNamespace(mode=mode)))
    nothing: Any = None
    assert FeatureContext(config, session, nothing, [], [], nothing).is_watched is watched


def test_a_run_on_a_terminal(attnperf_project: FakeProject) -> None:
    """Rows for cases under way and ended stand below pytest's output, which appears as without them; nothing of the
    table is left at the end, and the cursor was never hidden."""
    pytest.importorskip("rich")
    attnperf_project.backend("fake.a", time_us=100)
    attnperf_project.backend("fake.b", time_us=100)
    attnperf_project.store_baselines()
    attnperf_project.backend("fake.b", time_us=120)
    _, fd = start_on_terminal(attnperf_project, "--attnperf", "-v", "--color=no", CI="")
    try:
        told = read_until(fd, " in ", read_until(fd, "short test summary info"))
    finally:
        os.close(fd)
    live, _, after = told.rpartition("\x1b8")
    assert re.search(r"\x1b\[B\rcase +state +time +blocks\x1b\[K", live)
    assert re.search(r"\x1b\[B\rfake\.a\S+ +SAME \S+ % +100\.\d us +[▁▂▃▄▅▆▇█]+\x1b\[K", live)
    assert re.search(r"\x1b\[B\rfake\.b\S+ +[a-z-]+(?:, second look \d of 3)? +\S+", live)
    assert "so far: 1 same\x1b[K" in live
    assert "\x1b" not in after.removeprefix("\x1b[J").replace("\x1b[J", "")
    assert "SLOWER: prefill/fake.b/" in after
    assert "[100%]" in told
    assert "\x1b[?25l" not in told


def test_ctrl_c_leaves_a_clean_terminal(attnperf_project: FakeProject) -> None:
    """The table is cleared before the answer, and not drawn again below what pytest says."""
    pytest.importorskip("rich")
    attnperf_project.backend("fake.a", fault="hang")
    _, fd = start_on_terminal(attnperf_project, "--attnperf", "-v", "--color=no", CI="")
    try:
        read_until(fd, " proving ")
        os.write(fd, b"\x03")
        told = read_until(fd, "no tests ran in")
    finally:
        os.close(fd)  # hangs up, which ends what still runs
    answer = told.index("attnperf: interrupted; ending 1 worker")
    assert "\x1b[J" in told[:answer]
    assert "blocks" not in told[answer:]
    assert "\x1b[?25l" not in told


def test_a_log_has_no_table(attnperf_project: FakeProject) -> None:
    """In a pipe -v prints what it always did."""
    attnperf_project.backend("fake.a", time_us=100)
    result = attnperf_project.run("--attnperf", "-v")
    assert "\x1b" not in result.stdout.str()
    result.stdout.no_fnmatch_line("*so far:*")
    result.stdout.fnmatch_lines(["*test_prefill?fake.a-*NO_BASELINE*"])
