from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.code import CodeExecution, CodeFinding, CodeResult, KernelCode
from pytest_attnperf.records.gpus import DeviceState
from pytest_attnperf.records.histories import CaseHistory
from pytest_attnperf.reports.html.heading import (
    MOST_CARDS,
    build_kernel_table,
    list_changes,
    make_cards,
    run_heads,
    sanitize_link,
    verdict_counts,
)
from pytest_attnperf.reports.html.rows import build_table
from pytest_attnperf.reports.run.joined import join_single
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
