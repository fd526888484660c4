from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_attnperf.records import CaseKey, DeviceInfo, Verdict
from pytest_attnperf.records.code import CodeExecution, CodeFinding, CodeResult, KernelCode
from pytest_attnperf.records.gpus import DeviceState
from pytest_attnperf.records.histories import CaseHistory
from pytest_attnperf.reports.html.heading import (
    MOST_CARDS,
    MOST_SUITES,
    STRIP_WIDTH,
    SuiteList,
    build_kernel_table,
    list_changes,
    list_suites,
    make_cards,
    run_heads,
    sanitize_link,
    verdict_counts,
)
from pytest_attnperf.reports.html.rows import build_table
from pytest_attnperf.reports.run.joined import join_runs, join_single
from pytest_attnperf.results import CaseResult, RunResult

Case = Callable[..., CaseResult]
Run = Callable[..., RunResult]

CODE = KernelCode("k", "gfx942", 96, 0, 96, 40, 2, 0, 16, 1024, 0, 64, 256, 256, 64, None, False, 9000, "abc")


@pytest.mark.parametrize(
    ("address", "safe"),
    [
        ("https://ci.example/1", True),
        (" http://ci.example/1 ", True),
        ("javascript:alert(1)", False),
        ("JavaScript:alert(1)//https://", False),
        ("data:text/html,x", False),
        ("//ci.example", False),
        ("https://ci.example/\n1", False),
        ("https://" + "x" * 5000, False),
    ],
)
def test_only_addresses_of_the_web_are_links(address: str, safe: bool) -> None:
    """Anything that a click could run, or that is no line, is no link."""
    assert sanitize_link(address) == (address.strip() if safe else "")


def test_run_head_says_where_and_against_what(case: Case, run: Run) -> None:
    """Device, software, commit, baseline's commit, detection limit, notes of the device; nothing that is not known."""
    made = run(
        case(stored_us=(24.6,), stored_commit="c0ffee", detection_limit=0.021),
        seconds=125.0,
        device_state=DeviceState(throttled_s={"power cap": 1.5}, notes=("exclusive mode",)),
    )
    (head,) = run_heads(join_single(made, "results.json"))
    facts = {name: text for name, text, _ in head["facts"]}  # type: ignore[attr-defined]
    assert head["line"].startswith("1 slower on sm_90/h200 against c0ffee; slowest: ")  # type: ignore[attr-defined]
    assert facts["device"] == "sm_90/h200"
    assert facts["compared with"] == "c0ffee"
    assert facts["median look detects"] == "+2.1 % or more"
    assert facts["took"] == "2 min 5 s"
    assert facts["device throttled"] == "power cap 1.50 s"
    assert head["notes"] == ["exclusive mode"]
    assert "branch" not in facts


def test_cards_are_of_cases_that_need_somebody(case: Case, run: Run) -> None:
    """Failing cases first, then unresolved ones, with their figures; passing ones have none, the rest is counted."""
    passing = case("a", verdict=Verdict.SAME, fails=False)
    undecided = case("b", verdict=Verdict.UNDECIDED, fails=False)
    many = [case(f"c{index}") for index in range(MOST_CARDS + 5)]
    found, more = make_cards(build_table(join_single(run(passing, undecided, case("c")))))
    assert [(card.verdict, card.fails) for card in found] == [("SLOWER", True), ("UNDECIDED", False)]
    assert found[0].figures == "+6.1 %, 95 %: +5.2 % .. +7.0 %, 24.60 us -> 26.10 us"
    assert found[0].reproduce.startswith("pytest --attnperf")
    assert more == 0
    found, more = make_cards(build_table(join_single(run(*many))))
    assert (len(found), more) == (MOST_CARDS, 5)


def test_counts_are_worst_first(case: Case, run: Run) -> None:
    """Each verdict that is there, with the word that stands behind its count."""
    same = [case(name, verdict=Verdict.SAME, fails=False) for name in "ab"]
    found = verdict_counts(build_table(join_single(run(*same, case("c")))))
    assert [(count["count"], count["word"], count["fails"]) for count in found] == [
        (1, "slower", True),
        (2, "same", False),
    ]


def test_kernels_are_a_table_worst_first() -> None:
    """A worse kernel stands first with its findings; columns that hold nothing are left out."""
    finding = CodeFinding("spills", True, "0", "2", "2 VGPRs are spilled")
    worse = CodeResult(CaseKey("code", "b", "w"), "n", Verdict.WORSE, "worse", True, (finding,), code=CODE)
    same = CodeResult(CaseKey("code", "a", "w"), "n", Verdict.SAME, "same", code=CODE)
    failed = CodeResult(CaseKey("code", "c", "w"), "n", Verdict.ERROR, "it does not compile")
    found = build_kernel_table([same, failed, worse])
    rows = found["rows"]
    assert [row["name"] for row in rows] == ["code/b/w", "code/c/w", "code/a/w"]  # type: ignore[attr-defined]
    assert rows[0]["findings"] == ["2 VGPRs are spilled"]  # type: ignore[index]
    assert "occupancy" not in found["head"]  # type: ignore[operator]
    assert set(rows[1]["cells"]) == {""}  # type: ignore[index]
    assert "executed" not in found["head"]  # type: ignore[operator]
    assert build_kernel_table([])["rows"] == []


def test_kernels_say_what_executing_them_showed() -> None:
    """In the first column, which is there as soon as one was executed."""
    right = CodeResult(CaseKey("code", "a", "w"), "n", Verdict.SAME, "same", code=CODE, executed=CodeExecution("right"))
    other = CodeResult(CaseKey("code", "b", "w"), "n", Verdict.SAME, "same", code=CODE)
    found = build_kernel_table([right, other])
    assert found["head"][0] == "executed"  # type: ignore[index]
    assert [row["cells"][0] for row in found["rows"]] == ["right", ""]  # type: ignore[attr-defined]


def test_changes_name_their_case(history: Callable[..., CaseHistory]) -> None:
    """A change has its case's row where the report has it; one of another device has none."""
    found = list_changes([history("p/a/w"), history("p/a/w", "gfx942", "mi300x")], {("sm_90/sample", "p/a/w"): 3})
    assert [(entry["case"], entry["index"]) for entry in found] == [
        ("gfx942/mi300x p/a/w", None),
        ("sm_90/sample p/a/w", 3),
    ]


def test_quarantined_cases_are_listed_apart(case: Case, run: Run) -> None:
    """They need nobody before their date: no card, a count of their own, and a list with issue and date."""
    held = case("a", fails=False, quarantined="https://a.b/7 until 2026-02-10")
    right = case("b", verdict=Verdict.RIGHT, fails=False, median_us=None, unchanged=True)
    joined = join_single(run(held, right))
    table = build_table(joined)
    assert make_cards(table) == ([], 0)
    assert [(one["verdict"], one["count"], one["fails"]) for one in verdict_counts(table)] == [
        ("QUARANTINED", 1, False), ("UNCHANGED", 1, False)
    ]  # fmt: skip
    assert run_heads(joined)[0]["quarantined"] == [f"{held.key}: SLOWER, quarantined: https://a.b/7 until 2026-02-10"]


def suites_of(*runs: RunResult) -> SuiteList:
    """The lines of the page of these runs."""
    return list_suites(build_table(join_runs([(f"{number}.json", run) for number, run in enumerate(runs)])))


def in_suite(case: CaseResult, suite: str) -> CaseResult:
    """The case in another suite."""
    return replace(case, key=replace(case.key, suite=suite))


def test_line_counts_its_cases(case: Case, run: Run) -> None:
    """Cases of a suite by verdict, the worst first, and its smallest and largest change."""
    cases = [
        case("a", verdict=Verdict.SAME, ratio=0.99),
        case("b", verdict=Verdict.SLOWER, ratio=1.04, fails=True),
        case("c", verdict=Verdict.SAME, ratio=1.01),
    ]
    other = in_suite(case("a", verdict=Verdict.NO_BASELINE, ratio=None), "decode")
    found = suites_of(run(*cases, other))
    first, second = found.lines
    assert [(verdict, count) for verdict, count, _ in first.counts] == [("SLOWER", 1), ("SAME", 2)]
    assert (first.fails, first.changes) == (True, "-1.0 % .. +4.0 %")
    assert (second.name, second.changes, second.strip) == ("decode", "", ())


def test_strip_has_a_dot_for_each_change(case: Case, run: Run) -> None:
    """Failing ones are on top; a change beyond the axis is at its end, and one of zero in the middle."""
    cases = [
        case("a", verdict=Verdict.SAME, ratio=1.0),
        case("b", verdict=Verdict.SLOWER, ratio=9.0),
        case("c", verdict=Verdict.FASTER, ratio=0.5),
    ]
    found = suites_of(run(*cases, in_suite(case("a"), "decode")))
    (line,) = [line for line in found.lines if line.name != "decode"]
    assert [dots.tone for dots in line.strip] == ["quiet", "good", "bad"]
    places = [float(dots.path[1:].split()[0]) for dots in line.strip]
    assert places == [STRIP_WIDTH / 2, 6.0, STRIP_WIDTH - 6.0]
    assert found.percent == 25.0


def test_one_suite_needs_no_lines(case: Case, run: Run) -> None:
    """Neither does a page without a change: its picture has a row for each suite."""
    assert suites_of(run(case("a"))).lines == ()
    stored = case("a", ratio=None, interval=None)
    assert suites_of(run(stored, in_suite(stored, "decode"))).lines == ()
    assert suites_of().lines == ()


def test_devices_are_told_apart(case: Case, run: Run) -> None:
    """The same suite on two devices has two lines, which name the device."""
    one = run(case("a"))
    other = replace(one, device=DeviceInfo("rocm", "gfx942", "mi300x"))
    lines = suites_of(one, other).lines
    assert {line.device for line in lines} == {"sm_90/h200", "gfx942/mi300x"}
    assert [line.name for line in lines] == [f"{line.device} {line.suite}" for line in lines]


@pytest.mark.parametrize("ratio", [float("nan"), float("inf"), 0.0, 1e300])
def test_impossible_changes_stay_inside(case: Case, run: Run, ratio: float) -> None:
    """Every dot is inside the strip."""
    found = suites_of(run(case("a", ratio=ratio), in_suite(case("b"), "decode")))
    for line in found.lines:
        for dots in line.strip:
            assert 0 <= float(dots.path[1:].split()[0]) <= STRIP_WIDTH


def test_many_suites_are_cut(case: Case, run: Run) -> None:
    """The page says how many are left out."""
    found = suites_of(run(*(in_suite(case("a"), f"suite {number}") for number in range(MOST_SUITES + 5))))
    assert (len(found.lines), found.more) == (MOST_SUITES, 5)
