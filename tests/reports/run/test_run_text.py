from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from math import inf, nan
from typing import TypeAlias

import pytest

from pytest_attnperf.records import CaseKey, DeviceInfo, Verdict
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.reports.run.joined import join_runs, join_single
from pytest_attnperf.reports.run.run_text import run_text, suite_sections
from pytest_attnperf.reports.run.terminal import closing_lines
from pytest_attnperf.reports.text.colour import Ink
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.session.case_records import NOT_TO_BE_TIMED
from pytest_attnperf.testing.sample_runs import sample_run

CaseFactory: TypeAlias = Callable[..., CaseResult]
RunFactory: TypeAlias = Callable[..., RunResult]

MI300X = DeviceInfo("hip", "gfx942", "mi300x")
WORSE = CodeResult(
    CaseKey("code_objects", "hip.saxpy", "plain", "gfx942"), "test_code.py", Verdict.WORSE, "spills", True
)


@pytest.fixture
def small(case: CaseFactory, run: RunFactory) -> RunResult:
    """A slower case, one that is the same, and a kernel that became worse."""
    same = case("native.eager_fp32", verdict=Verdict.SAME, ratio=1.0, fails=False)
    return run(same, case(), code=(WORSE,), selected=3)


def test_tables_by_default(small: RunResult) -> None:
    """A table per suite and one of compiled kernels, then the closing lines; nothing stands twice."""
    blocks = run_text(join_single(small, "results.json"), width=80).split("\n\n")
    assert [block.splitlines()[0] for block in blocks] == [
        *("prefill", "code_objects", "change: time against the baseline or the base side"),
        closing_lines(small)[0],
    ]
    assert blocks[-1].splitlines() == closing_lines(small, "results.json")
    assert max(len(line) for block in blocks[:-1] for line in block.splitlines()) <= 80


def test_quiet(small: RunResult) -> None:
    """-1 shows only what failed or is unresolved, worst first, kernels among it, and the closing lines."""
    lines = run_text(join_single(small), width=80, verbosity=-1).splitlines()
    assert [line.split()[:2] for line in lines[2:5]] == [
        ["WORSE", str(WORSE.key)],
        [str(small.cases[1].key)],
        ["SLOWER", "26.10"],
    ]
    assert lines[5:] == ["", *closing_lines(small)]


def test_one_line(small: RunResult) -> None:
    """-2 is one line per run, with the file's name where there is one, kernels behind the cases."""
    first, second = run_text(
        join_runs([("a.json", small), ("b.json", replace(small, cases=()))]), width=80, verbosity=-2
    ).splitlines()
    assert first.startswith("a.json: 1 slower, 1 same on sm_90/h200; slowest: ")
    assert first.endswith("; code objects: 1 worse on gfx942")
    assert second == "b.json: code objects: 1 worse on gfx942"


def test_verbose_shows_every_case() -> None:
    """A long table leaves out what is the same, until it is verbose."""
    joined = join_single(sample_run(300))
    short, full = (run_text(joined, width=120, verbosity=verbosity) for verbosity in (0, 1))
    assert re.search(r"^\d+ cases SAME are not shown \(-v shows all\)$", short, re.MULTILINE)
    assert "not shown" not in full
    assert not re.search(r"^SAME ", short, re.MULTILINE)
    assert len(re.findall(r"^SAME ", full, re.MULTILINE)) == sum(
        case.verdict is Verdict.SAME for case in joined.runs[0].cases
    )


def test_the_worst_stand_first_in_long_runs() -> None:
    """Beyond 40 rows at most 20 of what failed or is unresolved stand before the tables; others are counted."""
    text = run_text(join_single(sample_run(400)), width=80)
    block = text.split("\n\n")[0].splitlines()
    verdicts = [line.split()[0] for line in block[3:42:2]]
    assert verdicts == sorted(verdicts, key=["INCORRECT", "SLOWER", "UNDECIDED", "NO_BASELINE"].index)
    assert verdicts[0] == "INCORRECT"
    assert re.fullmatch(r"\.\.\. and \d+ more", block[42])
    assert len(block) == 43
    assert run_text(join_single(sample_run(40)), width=80).startswith("prefill\n")


def test_one_table_per_device(case: CaseFactory, run: RunFactory) -> None:
    """Two devices are never in one table, and a speedup is against the reference of the same one."""
    eager = case("native.eager_fp32", median_us=261.0, verdict=Verdict.SAME)
    runs = [("a", run(eager, case())), ("b", run(case(), device=MI300X, started="2026-02-01T00:00:00Z"))]
    sections = list(suite_sections(join_runs(runs), width=100))
    assert [(part.device, len(part.cases)) for part in sections] == [("sm_90/h200", 2), ("gfx942/mi300x", 1)]
    assert ["10.0x" in part.text for part in sections] == [True, False]
    text = run_text(join_runs(runs), width=100)
    assert "prefill on sm_90/h200\n" in text
    assert "prefill on gfx942/mi300x\n" in text
    quiet = run_text(join_runs(runs), width=100, verbosity=-1)
    assert "  gfx942/mi300x prefill/triton.flash/" in quiet


def test_a_case_of_two_runs_is_said(case: CaseFactory, run: RunFactory) -> None:
    """What had to be decided to join runs stands before the closing lines, wrapped."""
    text = run_text(join_runs([("a", run(case())), ("b", run(case()))]), width=60)
    note = next(block for block in text.split("\n\n") if "occurs twice" in block)
    assert max(map(len, note.splitlines())) <= 60


def test_cases_that_are_only_proven_are_counted(case: CaseFactory, run: RunFactory) -> None:
    """Hundreds of tests that ask for no time have a line, not a row each."""
    notes = (Note(NoteKind.PROVEN_ONLY, NOT_TO_BE_TIMED),)
    proven = {"verdict": Verdict.RIGHT, "fails": False, "median_us": None, "ratio": None, "notes": notes}
    text = run_text(join_single(run(*(case(f"b{index}", **proven) for index in range(3)))), width=80)
    assert text.splitlines()[:2] == ["prefill", "3 cases right, and not timed: their tests have timed=False"]


@pytest.mark.parametrize("verbosity", [-2, -1, 0, 1])
def test_hostile_text(case: CaseFactory, run: RunFactory, verbosity: int) -> None:
    """Names, commits, notes and devices of 100 kB with escapes neither paint, nor break lines, nor go on for ever."""
    hostile = "\x1b[2J\n\u202e注" + "x" * 100_000
    bad = case(hostile, workload=hostile, label=hostile, stored_us=(1.0,), stored_commit=hostile)
    made = run(bad, device=DeviceInfo("hip", hostile, hostile), findings=(hostile,), commit=hostile)
    text = run_text(join_single(made, hostile), width=80, verbosity=verbosity)
    assert not set(text) & set("\x1b\u202e")
    assert len(text) < 12_000
    assert len(text.splitlines()) < 26


def test_figures_that_are_no_numbers(case: CaseFactory, run: RunFactory) -> None:
    """NaN and Inf of a file are printed as such, and do not disturb the order of the others."""
    odd = {"median_us": nan, "ratio": nan, "interval": (nan, inf), "floor_us": inf, "detection_limit": inf}
    cases = [case("a", ratio=1.03), case("b", **odd), case("c", ratio=1.2), case("d", ratio=1.1)]
    text = run_text(join_single(run(*cases)), width=140, verbosity=1)
    assert "nan" in text
    quiet = run_text(join_single(run(*cases)), width=140, verbosity=-1).splitlines()
    assert [line.split()[1].split("/")[1] for line in quiet[2:6]] == ["c", "d", "a", "b"]


def test_colours_change_nothing_else(small: RunResult) -> None:
    """Without its escapes the coloured text is the plain one, at every verbosity."""
    for verbosity in (-2, -1, 0, 1):
        plain, painted = (
            run_text(join_single(small), width=80, ink=Ink(on), verbosity=verbosity) for on in (False, True)
        )
        assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == plain
        assert (painted != plain) is (verbosity > -2)


def test_two_thousand_cases_are_fast() -> None:
    """Everything that a terminal shows of 2,000 cases."""
    joined = join_single(sample_run(2000))
    started = time.process_time()
    text = run_text(joined, width=120, verbosity=1)
    assert time.process_time() - started < 2.0
    assert sum(line.startswith(tuple(Verdict)) for line in text.splitlines()) >= 2000


def test_notes_of_runs(small: RunResult) -> None:
    """Stored baselines say what they are, once for many files; notes of a measured run are for the verbose."""
    stored = replace(small, mode="baselines", notes=("nothing was measured",))
    both = join_runs([("a.json", stored), ("b.json", replace(stored, code=(), cases=()))])
    assert run_text(both, width=80).count("nothing was measured") == 1
    measured = join_single(replace(small, notes=("retried once",)))
    assert "retried once" not in run_text(measured, width=80)
    assert "retried once" in run_text(measured, width=80, verbosity=1)


def test_unchanged_cases_are_counted_in_place_of_rows(case: CaseFactory, run: RunFactory) -> None:
    """Of cases that run what they ran there is nothing to say but how many; one that fails all the same has its row."""
    right = case("a", verdict=Verdict.RIGHT, fails=False, median_us=None, ratio=None, unchanged=True)
    expired = case("b", verdict=Verdict.RIGHT, median_us=None, ratio=None, unchanged=True)
    (part,) = suite_sections(join_single(run(right, expired, case("c"))), width=80)
    assert part.text.splitlines()[-1] == "1 cases right, and not timed: unchanged since their baseline"
    assert [name in part.text.split() for name in ("a", "b", "c")] == [False, True, True]
