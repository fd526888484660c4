from __future__ import annotations

from pathlib import Path

import pytest

from pytest_attnperf.codeobject.analysis import Analyser
from pytest_attnperf.codeobject.objects import read_object
from pytest_attnperf.errors import ToolMissingError
from pytest_attnperf.records.code import KernelCode
from pytest_attnperf.tools.occupancy.occupancy_page import build_cycle_sections

TILE = Path(__file__).parents[2] / "data" / "assembly" / "tile-gfx942.co"


@pytest.fixture(scope="module")
def codes() -> list[KernelCode]:
    """A kernel with a key loop and one without."""
    data = TILE.read_bytes()
    names = [one.code.name for one in read_object(data, str(TILE), arch="").kernels]
    try:
        return [Analyser().analyse(data, str(TILE), arch="", kernel=name, threads=64) for name in names]
    except ToolMissingError as error:
        pytest.skip(f"needs a disassembler: {error}")


def test_a_key_loop_is_bars_and_tables(codes: list[KernelCode]) -> None:
    """Busy units as bars, instructions with cycles as rows, and cycles per key where these are given."""
    sections = build_cycle_sections(codes, 16)
    assert [section.title for section in sections] == ["Cycles of tile", "Cycles of spill"]
    bars = {bar["name"]: bar["label"] for bar in sections[0].figures[0].data["bars"]}
    assert bars == {"MFMA": "11 %", "VALU": "5 %", "LDS": "21 %", "memory": "43 %"}
    assert "a key" in sections[0].lead[1]
    assert sections[0].tables[0].rows[0] == ("MFMA", "2", "32", "")
    assert sections[0].tables[1].rows[0][0] == "s_waitcnt vmcnt(0)"


def test_a_kernel_without_an_estimate_says_why(codes: list[KernelCode]) -> None:
    """No chart and no table, but the reason."""
    section = build_cycle_sections(codes)[1]
    assert section.lead == ("no estimate: it has no matrix instructions, and the model judges loops by these",)
    assert (section.figures, section.tables) == ((), ())
