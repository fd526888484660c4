from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.reports.html.document import render_document
from pytest_attnperf.tools.tuner.tune_page import DRAWN, LISTED, SETTINGS, build_sections, read_sections
from pytest_attnperf.tuning_records import NO_BETTER, STATIC_ONLY, Candidate, Trial, TuneResult, WorkloadChange
from tests.reports.html.conftest import HOSTILE
from tests.tools.tuner.test_tuned_files import FIGURES, LONG, OF_THE_LAUNCH, PAIR, SHORT, THIRD, TUNED, WINNER

pytest.importorskip("jinja2", reason="the HTML report needs jinja2")
pytest.importorskip("vl_convert", reason="the HTML report needs vl_convert")

Check = Callable[[str, int], None]
MEASURED = Path(__file__).parents[2] / "data/tuning/h200_prefill_forward_d256.json"


def trials(*factors: float) -> tuple[Trial, ...]:
    """Two workloads in a process for each factor: the default takes 100 us times it, the winner 80."""
    return tuple(
        Trial(candidate, workload, process, us * factor)
        for process, factor in enumerate(factors)
        for workload in (SHORT, LONG)
        for candidate, us in ((OF_THE_LAUNCH, 100.0), (WINNER, 80.0 + process))
    )


RESULT = replace(TUNED, trials=trials(1.0, 1.1, 0.9), ranking=((WINNER, 0.81), (THIRD, 0.9), (OF_THE_LAUNCH, 1.0)))


def measured() -> TuneResult:
    """The whole space of a kernel as it was timed on an H200, one process each."""
    stored = json.loads(MEASURED.read_text())
    rows = [(Candidate(row["values"]), row["us"]) for row in stored["rows"]]
    default = next(us for candidate, us in rows if dict(candidate.values) == stored["default"])
    first = stored["workloads"][0]
    ranking = sorted(((candidate, us[first] / default[first]) for candidate, us in rows), key=lambda pair: pair[1])
    return replace(TUNED, default=Candidate(stored["default"]), winner=ranking[0][0], ranking=tuple(ranking), trials=())


def test_candidates_are_dots_against_the_default(check_page: Check, read_tooltip: Any) -> None:
    """Cost, the ratio of each process, the interval over them; the default is the default, without an interval."""
    sections = build_sections(RESULT)
    assert [section.title for section in sections] == [
        "Candidates of triton.flash, prefill_forward", "What each setting costs", "The verdict's pairs"
    ]  # fmt: skip
    dots = sections[0].figures[0].data["dots"]
    assert [(dot["name"], dot["kind"], dot["text"]) for dot in dots] == [
        ("BLOCK_M=64 BLOCK_N=32", "winner", "winner -19.0 %"),
        ("BLOCK_M=32 BLOCK_N=32", "", "-10.0 %"),
        ("BLOCK_M=128 BLOCK_N=64", "default", "default 0.0 %"),
    ]
    assert [strip["at"] for strip in sections[0].figures[0].data["strips"]] == pytest.approx([-20, -19, -18])
    assert (dots[0]["low"] < -19 < dots[0]["high"], dots[1]["low"], dots[2]["low"]) == (True, None, None)
    assert "All have num_warps=4." in sections[0].figures[0].caption
    assert sections[0].lead[0] == "BETTER: 20.0 % faster"
    check_page(render_document("Tuning", sections), 4)
    told = read_tooltip('.mark-symbol path[aria-label^="BLOCK_M=64 BLOCK_N=32, winner"]')
    assert (told["processes"], told["registers"], told["LDS"]) == ("3", "168", "49152 B")


def test_a_setting_shows_the_best_of_each_value(check_page: Check) -> None:
    """Of a space that was timed whole: settings by how much they matter, values in order, all candidates as a strip."""
    sections = build_sections(measured())
    settings = sections[1]
    assert {figure.title for figure in settings.figures} == {
        "BLOCK_M", "BLOCK_N", "GROUP_HEADS", "PRELOAD_V", "num_stages", "num_warps"
    }  # fmt: skip
    stages = next(figure for figure in settings.figures if figure.title == "num_stages")
    assert [dot["name"] for dot in stages.data["dots"]] == ["num_stages=1", "num_stages=2", "num_stages=3"]
    spreads = [max(dot["at"] for dot in one.data["dots"]) - min(dot["at"] for dot in one.data["dots"])
               for one in settings.figures]  # fmt: skip
    assert spreads == sorted(spreads, reverse=True)
    assert len(sections[0].figures[0].data["dots"]) == DRAWN + 1  # and the default, which is far behind
    assert len(sections[0].tables[0].rows) == 152
    check_page(render_document("Tuning", sections[:2]), 7)


def test_pairs_of_the_verdict_are_dots(check_page: Check, read_tooltip: Any) -> None:
    """The worst workload first, with its pairs; one without a ratio says its verdict, and its note is in the lead."""
    failed = WorkloadChange("mixed", False, None, None, None, None, "FAILED", "the winner died")
    (section,) = build_sections(replace(RESULT, changes=(*RESULT.changes, failed)))[2:]
    (figure,) = section.figures
    assert [(dot["name"], dot["kind"], dot["text"]) for dot in figure.data["dots"]] == [
        ("mixed", "FAILED", "FAILED"), (LONG, "SLOWER", "+5.0 %"), (SHORT, "FASTER", "-20.0 %")
    ]  # fmt: skip
    assert [strip["at"] for strip in figure.data["strips"]] == pytest.approx([100 * (PAIR.ratio - 1)])
    assert any("the winner died" in text for text in section.lead)
    check_page(render_document("Tuning", [section]), 1)
    assert read_tooltip(f'.mark-symbol path[aria-label^="{LONG}"]')["tuned"] == "no, served by the same rule"


@pytest.mark.parametrize(("share", "axis"), [(0.5, "share of the matrix units' peak (%)"), (None, "registers of a")])
def test_static_ranking_marks_spills(check_page: Check, share: float | None, axis: str) -> None:
    """In the order of the ranking, by estimated share of the peak where one is known; what spills is marked."""
    spilling = replace(FIGURES, spills=9, peak_share=share)
    static = {WINNER.id: replace(FIGURES, peak_share=share), THIRD.id: spilling}
    ranking = ((WINNER, None), (THIRD, None), (OF_THE_LAUNCH, None))
    result = replace(TUNED, verdict=STATIC_ONLY, trials=(), changes=(), ranking=ranking, static=static)
    (section,) = build_sections(result)
    (figure,) = section.figures
    value = "50.0 %" if share else "168"
    assert [(dot["kind"], dot["text"]) for dot in figure.data["dots"]] == [
        ("winner", value), ("spills", f"{value}, spills"), ("default", "-")
    ]  # fmt: skip
    assert figure.spec["encoding"]["x"]["title"].startswith(axis)
    assert "spills" in [head.text for head in section.tables[0].heads]
    check_page(render_document("Tuning", [section]), 1)


def test_run_without_anything_timed_has_its_words(check_page: Check) -> None:
    """No better, nothing ranked: the lead says why, and there is no chart."""
    result = replace(TUNED, verdict=NO_BETTER, winner=None, trials=(), ranking=(), static={}, changes=())
    (section,) = build_sections(result)
    assert section.lead[0].startswith("NO_BETTER: ")
    check_page(render_document("Tuning", [section]), 0)


def test_ten_thousand_candidates_stay_a_page() -> None:
    """Charts and tables are bounded, and say what they leave out."""
    ranking = tuple(
        (Candidate({f"P{at}": number % (at + 2) for at in range(SETTINGS + 3)} | {"N": number}), 1 + number / 1e4)
        for number in range(10_000)
    )
    candidates, settings = build_sections(replace(RESULT, trials=(), ranking=ranking, changes=()))
    assert len(candidates.figures[0].data["dots"]) == DRAWN
    assert f"the first {LISTED} of 10000" in candidates.tables[0].caption
    assert len(settings.figures) == SETTINGS
    assert settings.lead[1].startswith("Not drawn: ")
    assert len(settings.tables[0].rows) <= LISTED


def test_hostile_names_stay_names(check_page: Check) -> None:
    """Settings, values, labels, workloads and notes that are scripts, control characters or lone surrogates."""
    made = [Candidate({text: text, "n": number}, text) for number, text in enumerate(HOSTILE)]
    result = replace(
        RESULT,
        backend=HOSTILE[0],
        kernel=HOSTILE[1],
        summary=HOSTILE[2],
        notes=HOSTILE,
        default=made[0],
        winner=made[1],
        trials=tuple(Trial(one, HOSTILE[0], 1, float("nan")) for one in made),
        ranking=(*((one, 1 + number / 10) for number, one in enumerate(made)), (made[2], float("inf"))),
        changes=tuple(WorkloadChange(text, True, 1.0, 1.0, 1.0, (0.9, 1.1), text, text) for text in HOSTILE),
    )
    check_page(render_document("Tuning", build_sections(result)), 3)


def test_stored_run_reads_back() -> None:
    """What a run stores gives the same sections; anything else is refused, with what writes such a file."""
    assert read_sections(msgspec.json.encode(RESULT), "tune.json", "tune") == build_sections(RESULT)
    for data in (b"", b"{}", b"\xff", b"[" * 100_000):
        with pytest.raises(UsageError, match=r"tune\.json: is not what attnperf tune wrote"):
            read_sections(data, "tune.json", "tune")
