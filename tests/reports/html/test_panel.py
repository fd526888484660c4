from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_attnperf.records import CheckReport, ErrorFigures, Launch, Tolerance
from pytest_attnperf.records.code import KernelCode, Occupancy
from pytest_attnperf.records.rooflines import Ceiling
from pytest_attnperf.records.stages import Breakdown, StageTime
from pytest_attnperf.reports.html.panel import MOST_ROWS, TEXT_LIMIT, build_blocks, code_cells, code_head
from pytest_attnperf.reports.html.rows import CaseRow
from pytest_attnperf.reports.run.joined import Shown
from pytest_attnperf.results import CaseResult, RunResult

Make = Callable[..., dict[str, Any]]

CODE = KernelCode("k", "gfx942", 96, 32, 128, 40, 2, 0, 16, 1024, 31744, 64, 256, 256, 64, None, False, 9000, "abc" * 9)
OCCUPANCY = Occupancy(3, 3.0, 8, 1, 4, {"vgprs": 3}, ("vgprs",))


@pytest.fixture
def said(case: Callable[..., CaseResult], run: Callable[..., RunResult]) -> Make:
    """The blocks of a case with these fields, by heading."""

    def make(*, ceilings: tuple[Ceiling, ...] = (), occupancies: Any = None, **fields: object) -> dict[str, Any]:
        made = case(**fields)
        row = CaseRow(Shown(run(made), made, "sm_90/h200"), speedup=2.0)
        found = build_blocks(row, reference="native", ceilings=ceilings, occupancies=occupancies)
        return {block["heading"]: block for block in found}

    return make


def test_figures_are_formatted_once_and_for_all(said: Make) -> None:
    """Every figure is text as reports print it; what is not known is left out."""
    found = dict(
        said(stored_us=(24.5, 24.6), stored_commit="abc", stored_at="2026-01-01", detection_limit=0.025)["Figures"][
            "facts"
        ]
    )
    assert found["time"] == "26.10 us"
    assert (found["change"], found["95 % interval"], found["limit"]) == ("+6.1 %", "+5.2 % .. +7.0 %", "+2.0 %")
    assert found["stored by"] == "2 processes, abc, 2026-01-01"
    assert found["detects"] == "+2.5 % or more, 99 % of the time"
    assert found["share of the floor (compute)"] == "61 %"
    assert found["speedup over native"] == "2.00x"
    assert not any("roofline" in name for name in found)


def test_share_of_the_roofline_needs_ceilings(said: Make) -> None:
    """With the device's ceilings the share of them is said, and which kind they are."""
    ceilings = (Ceiling(1e15, "FLOP/s", "measured", "f16 matrix"), Ceiling(4e12, "B/s", "measured", "DRAM"))
    facts = dict(said(ceilings=ceilings)["Figures"]["facts"])
    assert facts["share of the measured roofline"] == "66 %"


def test_proof_shows_errors_against_budgets(said: Make) -> None:
    """Errors stand beside what they were allowed, with the worst element, the problems and a sourced tolerance."""
    wrong = ErrorFigures("seed 1", "out", 0.5, 0.01, 0.1, 0.001, (0, 3), nan_count=2, elements=64, beyond_count=5)
    check = CheckReport((wrong,), ("'out' is wrong",), Tolerance(3.0, "the paper"))
    proof = said(checks=(check,))["Proof"]
    assert dict(zip(proof["head"], proof["rows"][0], strict=False))["max error"] == "0.5"
    assert "5 of 64" in proof["rows"][0]
    assert "2" in proof["rows"][0]
    assert proof["notes"][0] == "'out' is wrong"
    assert "3 x the plain computation's are allowed (the paper)" in proof["notes"][1]
    only = said(checks=(CheckReport((), ("it raised",)),))["Proof: problems"]
    assert only["lines"] == ["it raised"]


def test_launches_and_code_name_kernels(said: Make) -> None:
    """A launch's dimensions, LDS and code hash, and of a code object registers, spills, LDS and occupancy."""
    launch = Launch("k", grid=(64, 8, 1), block=(256, 1, 1), shared_bytes=32768, calls=2.0, isa_hash="abc" * 9)
    found = said(launches=(launch,), code=(CODE,), occupancies={CODE.isa_hash: OCCUPANCY})
    assert found["Launches of one call"]["rows"] == [
        ["k", "kernel", "2", "64 x 8 x 1", "256 x 1 x 1", "32768", "abcabcabcabc"]
    ]
    cells = dict(zip(found["Code objects"]["head"], found["Code objects"]["rows"][0], strict=True))
    assert (cells["VGPRs"], cells["VGPR spills"], cells["LDS bytes"]) == ("96+32", "2", "32768")
    assert cells["occupancy"] == "3 of 8 waves/SIMD, limited by vgprs"


def test_unknown_code_has_no_cells() -> None:
    """A kernel that could not be compiled has a cell for every heading, and nothing in them."""
    assert code_cells(None, None) == [""] * len(code_head())


def test_stages_are_shares_of_the_call(said: Make) -> None:
    """Each stage with its share, and the whole call."""
    found = said(breakdown=Breakdown((StageTime("qkv", 5.0),), 20.0, "graph", 1.0, 2.0))["Stages"]
    assert found["rows"] == [["qkv", "5.000", "25 %"], ["whole call", "20.00", ""]]


def test_long_and_hostile_text_is_one_short_line(said: Make) -> None:
    """Nothing is longer than its limit, and no control character is left."""
    text = "\x1b[31m\n\u202e" + "y" * 100_000
    found = said(
        reasons=(text,) * 90, config={text: text}, reproduce=text, log=text, policy={text: [text]}, nodeid=text
    )

    def texts(value: Any) -> list[str]:
        if isinstance(value, str):
            return [value]
        return [text for child in (value.values() if isinstance(value, dict) else value) for text in texts(child)]

    every = [text for block in found.values() for text in texts(block)]
    assert max(map(len, every)) <= TEXT_LIMIT
    assert not any(character in text for text in every for character in "\x1b\n\u202e")
    assert len(found["Reasons"]["lines"]) == MOST_ROWS + 1
    assert found["Reasons"]["lines"][-1] == "... 50 more in results.json"


def test_an_empty_case_has_few_words(said: Make) -> None:
    """What holds nothing has no block."""
    found = said(checks=(), config={}, policy={}, fingerprint=None, reproduce="", median_us=None, first=(), second=())
    assert set(found) == {"Figures"}
