from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.reports.text.time_cells import TimeCell
from pytest_attnperf.reports.text.wide_tables import render_markdown_tables, render_terminal_tables
from pytest_attnperf.tools.tuner.tuned_files import (
    NOT_TIMED,
    RESULT,
    changes_table,
    header_lines,
    make_tables,
    ranking_table,
    write_tune_result,
)
from pytest_attnperf.tuning_records import (
    BETTER,
    NO_BETTER,
    STATIC_ONLY,
    Candidate,
    Excluded,
    StaticFigures,
    Trial,
    TunedFile,
    TuneResult,
    WorkloadChange,
)

DEFAULT = Candidate({"a": 1})
FILE = TunedFile("configs/good.json", "{}", "good")
BETTER_RESULT = TuneResult("b", "k", "arch", None, ("w",), "race", BETTER, "", DEFAULT, DEFAULT, 2, files=(FILE,))
NONE_BETTER = replace(BETTER_RESULT, verdict=NO_BETTER, files=())

OF_THE_LAUNCH = Candidate({"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 4})
WINNER = Candidate({"BLOCK_M": 64, "BLOCK_N": 32, "num_warps": 4})
THIRD = Candidate({"BLOCK_M": 32, "BLOCK_N": 32, "num_warps": 4})
PAIR = PairSummary(0.8, 100.0, 80.0, 8, "graph")
SHORT, LONG = "prefill-b4-s512-h8-d256-f16-causal", "prefill-b4-s4096-h8-d256-f16-causal"
FIGURES = StaticFigures(168, 0, 0, 49152, 2.0)
TUNED = TuneResult(
    backend="triton.flash",
    kernel="prefill_forward",
    arch="sm_90",
    device=DeviceInfo("cuda", "sm_90", "h200", name="NVIDIA H200"),
    workloads=(SHORT,),
    strategy="race",
    verdict=BETTER,
    summary="20.0 % faster",
    default=OF_THE_LAUNCH,
    winner=WINNER,
    candidates=5,
    trials=tuple(Trial(candidate, SHORT, 1, 80.0) for candidate in (OF_THE_LAUNCH, WINNER, WINNER)),
    excluded=(
        Excluded(Candidate({"BLOCK_M": 256}), "code object", "shared memory above 232,448 bytes"),
        Excluded(Candidate({"BLOCK_M": 512}), "code object", "shared memory above 232,448 bytes"),
        Excluded(THIRD, "wrong", "'out' is off by 0.5"),
    ),
    ranking=((WINNER, 0.8), (OF_THE_LAUNCH, 1.0)),
    static={WINNER.id: FIGURES},
    changes=(
        WorkloadChange(SHORT, True, 100.0, 80.0, 0.8, (0.79, 0.81), "FASTER", pairs=(PAIR,)),
        WorkloadChange(LONG, False, 200.0, 210.0, 1.05, (1.04, 1.06), "SLOWER", "served by the same rule"),
    ),
    seconds=12.4,
    notes=("the budget of 10 s ended the search",),
)


def said(result: TuneResult, out: Path) -> str:
    """What the terminal is told, in one line: where a long folder breaks its lines is the terminal's business."""
    return " ".join(write_tune_result(result, out).split())


@pytest.mark.parametrize("path", ["../outside.json", "/tmp/outside.json", "configs/../../outside.json"])
def test_no_file_is_written_outside(tmp_path: Path, path: str) -> None:
    """A tuned file's path is data of a backend: one that leaves the folder is refused, and nothing is written."""
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(UsageError, match="outside"):
        write_tune_result(replace(BETTER_RESULT, files=(FILE, replace(FILE, path=path))), out)
    assert list(tmp_path.rglob("*.json")) == []


def test_files_that_no_longer_hold_are_removed(tmp_path: Path) -> None:
    """A run that goes on and finds nothing better leaves no configuration of the run before it."""
    assert "written: " in said(BETTER_RESULT, tmp_path)
    assert (tmp_path / FILE.path).read_text() == FILE.text
    assert "removed: " not in said(BETTER_RESULT, tmp_path)
    assert "removed: " in said(NONE_BETTER, tmp_path)
    assert not (tmp_path / FILE.path).exists()


def test_a_file_that_somebody_changed_is_left_and_said(tmp_path: Path) -> None:
    """It is no longer the tuner's."""
    write_tune_result(BETTER_RESULT, tmp_path)
    (tmp_path / FILE.path).write_text("mine")
    assert "not removed: " in said(NONE_BETTER, tmp_path)
    assert (tmp_path / FILE.path).read_text() == "mine"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"files": 3}',
        '{"files": [{"path": 1, "text": 2}]}',
        '{"files": [{"path": "a\\u0000", "text": ""}]}',
        "[" * 100_000,
    ],
)
def test_an_earlier_result_that_cannot_be_read_removes_nothing(tmp_path: Path, text: str) -> None:
    """It is replaced."""
    (tmp_path / RESULT).write_text(text)
    write_tune_result(NONE_BETTER, tmp_path)
    assert json.loads((tmp_path / RESULT).read_text())["verdict"] == NO_BETTER


def test_nothing_outside_is_removed(tmp_path: Path) -> None:
    """A path in a result is data, too."""
    out, other = tmp_path / "out", tmp_path / "other.json"
    out.mkdir()
    other.write_text("{}")
    (out / RESULT).write_text(json.dumps({"files": [{"path": "../other.json", "text": "{}"}]}))
    write_tune_result(NONE_BETTER, out)
    assert other.exists()


def test_the_verdict_stands_first() -> None:
    """A reader sees the verdict, what was tuned where, how much was tried, and what was left out and why."""
    assert header_lines(TUNED) == [
        "BETTER: 20.0 % faster",
        "tuned: triton.flash, kernel prefill_forward, on NVIDIA H200 (sm_90)",
        f"workloads: {SHORT}",
        "searched (race): 5 candidates, 2 of them timed in 3 trials (one candidate on one workload in one process), "
        "12 s in all",
        "left out (code object): 2: 2 x shared memory above 232,448 bytes",
        "left out (wrong): 1: 1 x 'out' is off by 0.5",
        "the budget of 10 s ended the search",
    ]


def test_a_static_run_says_that_nothing_was_timed() -> None:
    """Without the device no time is shown, and the second line says so."""
    static = replace(TUNED, verdict=STATIC_ONLY, device=None, arch="gfx942", ranking=((WINNER, None),), changes=())
    lines = header_lines(static)
    assert lines[1] == NOT_TIMED
    assert "on gfx942, not present" in lines[2]
    (table,) = make_tables(static)
    assert "vs default" not in [column.header for column in table.columns]


def test_candidates_are_told_apart_by_what_differs() -> None:
    """What all candidates share stands below; winner and default are marked; figures of code objects stand beside."""
    table = ranking_table(TUNED)
    assert [column.header for column in table.columns] == [
        "vs default", "BLOCK_M", "BLOCK_N", "registers", "spills", "scratch B", "LDS B", "waves/SIMD",
    ]  # fmt: skip
    assert table.rows == (
        ("1 winner", "0.800", "64", "32", "168", "0", "0", "49152", "2"),
        ("2 default", "1.000", "128", "64", "-", "-", "-", "-", "-"),
    )
    assert table.notes == ("all of these: num_warps=4",)


def test_an_estimate_says_that_it_is_one() -> None:
    """Its column has a note with what it is and how far it may be off."""
    table = ranking_table(replace(TUNED, static={WINNER.id: replace(FIGURES, peak_share=0.4567)}))
    assert [column.header for column in table.columns][-1] == "est. MFMA %"
    assert [row[-1] for row in table.rows] == ["45.7", "-"]
    assert table.notes[1] == (
        "est. MFMA %: share of the matrix units' peak in the key loop, estimated by a static issue model, +-30 %, "
        "never run"
    )


def test_figures_that_are_known_of_none_are_left_out() -> None:
    """No column of dashes: without code objects nothing is said of them, and in a static run no cost."""
    measured = ranking_table(replace(TUNED, static={}))
    assert [column.header for column in measured.columns] == ["vs default", "BLOCK_M", "BLOCK_N"]
    table = ranking_table(replace(TUNED, verdict=STATIC_ONLY, ranking=((WINNER, None), (OF_THE_LAUNCH, None))))
    assert [column.header for column in table.columns][:3] == ["BLOCK_M", "BLOCK_N", "registers"]
    assert [row[0] for row in table.rows] == ["1 first", "2 default"]


def test_a_library_s_own_candidate_has_no_values() -> None:
    """It is told by its label."""
    own = Candidate({}, "autotuned by aiter")
    table = ranking_table(replace(TUNED, ranking=((own, 0.7), (OF_THE_LAUNCH, 1.0)), static={}))
    assert table.rows[0] == ("1 autotuned by aiter", "0.700", "-", "-", "-")


def test_many_long_names_fit_a_terminal() -> None:
    """A kernel with seven parameters that differ: two tables of 100 columns, and nothing is cut or repeated."""
    names = ("BLOCK_M", "BLOCK_N", "PRELOAD_V", "matrix_instr_nonkdim", "num_stages", "num_warps", "waves_per_eu")
    ranking = tuple((Candidate(dict.fromkeys(names, size)), None) for size in (16, 128))
    text = render_terminal_tables(
        [], [ranking_table(replace(TUNED, ranking=ranking, static={ranking[0][0].id: FIGURES}))]
    )
    assert max(map(len, text.splitlines())) <= 100
    assert [text.count(name) for name in names] == [1] * len(names)
    assert text.count("rank") == 2


def test_the_default_is_always_shown() -> None:
    """A default that lies far behind is added to the ten best with its rank, and the rest is counted."""
    others = tuple((Candidate({"BLOCK_M": size}), 0.5) for size in range(12))
    table = ranking_table(replace(TUNED, ranking=(*others, (OF_THE_LAUNCH, 1.0))))
    assert (len(table.rows), table.rows[-1][0]) == (11, "13 default")
    assert table.notes == ("2 further candidates are in the JSON file",)


def test_reasons_that_differ_in_figures_are_one() -> None:
    """A hundred candidates that are beaten by as many percentages are one reason with an example."""
    beaten = tuple(Excluded(THIRD, "dropped", f"beaten: {count}.5 % slower") for count in (12, 7, 3))
    assert header_lines(replace(TUNED, excluded=beaten))[4] == "left out (dropped): 3: 3 x e.g. beaten: 12.5 % slower"


def test_the_worst_workload_stands_first() -> None:
    """One rule serves all workloads, and the worst decides: it is not at the end of a long table."""
    table = changes_table(TUNED.changes)
    assert [row[0] for row in table.rows] == [LONG, SHORT]
    assert table.rows[0] == (LONG, TimeCell(200.0), TimeCell(210.0), "+5.0 %", "+4.0 % .. +6.0 %", "-", "no", "SLOWER")
    assert table.rows[1][5:] == ("1", "yes", "FASTER")
    assert table.notes == (f"{LONG}: served by the same rule",)


def test_a_workload_that_failed_stands_before_all() -> None:
    """A winner that breaks a workload has no ratio there, and is the first that is read."""
    failed = WorkloadChange("other", False, None, None, None, None, "FAILED", "wrong: 'out' is off")
    assert changes_table((*TUNED.changes, failed)).rows[0][0] == "other"


def test_foreign_text_cannot_repaint_a_terminal() -> None:
    """Escape sequences in reasons, notes and labels are not printed."""
    evil = "\x1b[2Jgone"
    result = replace(
        TUNED,
        notes=(evil,),
        summary=evil,
        excluded=(Excluded(THIRD, "failed", evil),),
        ranking=((Candidate({"a": 1}, evil), 1.0),),
    )
    text = render_terminal_tables(header_lines(result), make_tables(result))
    assert "\x1b" not in text
    assert "gone" in render_markdown_tables(header_lines(result), make_tables(result))
