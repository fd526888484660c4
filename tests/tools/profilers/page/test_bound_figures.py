from __future__ import annotations

from dataclasses import replace

from pytest_attnperf.records.rooflines import BoundClass, BoundVerdict, Ceiling, RooflinePoint
from pytest_attnperf.tools.profilers.page.profile_sections import BoundWork, build_bound_bars, build_roofline

CEILINGS = (Ceiling(4.8e12, "B/s", "peak", "DRAM", "H200"), Ceiling(9.9e14, "FLOP/s", "measured", "f16 matrix", "H200"))
POINT = RooflinePoint(100.0, 5e9, 2e8, 5e13, 2e12, 25.0, 41.7, "DRAM", 0.417, CEILINGS)
MEMORY = BoundVerdict(BoundClass.MEMORY, "why", "", POINT)


def test_bars_are_numbered_as_the_points() -> None:
    """A work without a point keeps its number, so that both charts and the table count alike."""
    works = [BoundWork("a", MEMORY), BoundWork("b", None), BoundWork("c", replace(MEMORY, bound=BoundClass.UNDECIDED))]
    bars, roofline = build_bound_bars(works), build_roofline(works)
    assert bars is not None
    assert roofline is not None
    assert [(bar["name"], bar["label"]) for bar in bars.data["bars"]] == [
        ("1  a", "41.7 %, memory"),
        ("3  c", "41.7 %, not decidable"),
    ]
    assert [(point["number"], point["x"], point["y"]) for point in roofline.data["points"]] == [
        ("1", 25.0, 50.0),
        ("3", 25.0, 50.0),
    ]
    assert "f16 matrix 990 TFLOP/s, measured; DRAM 4800 GB/s, peak." in roofline.caption
    assert {line["kind"] for line in roofline.data["ceilings"]} == {"measured", "peak"}


def test_more_than_its_roof_is_not_cut() -> None:
    """A share above 1, which a cache gives, lengthens the axis."""
    bars = build_bound_bars([BoundWork("a", replace(MEMORY, point=replace(POINT, share=3.1)))])
    assert bars is not None
    assert bars.spec["layer"][0]["encoding"]["x"]["scale"]["domain"][1] > 3.1


def test_unknown_work_has_no_chart() -> None:
    """Without a time or FLOPs there is no bar and no point."""
    unknown = replace(MEMORY, point=RooflinePoint(1.0, None, None, None, None, None))
    assert build_bound_bars([BoundWork("a", unknown), BoundWork("b", None)]) is None
    assert build_roofline([BoundWork("a", unknown), BoundWork("b", None)]) is None
