from __future__ import annotations

import builtins
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.rooflines import BoundClass, Ceiling, RooflinePoint
from pytest_attnperf.tools.profilers.roofline_plot import STYLES, Named, write_plot

PEAK = Ceiling(1070e12, "FLOP/s", "peak", "f16 matrix")
MEASURED = Ceiling(760e12, "FLOP/s", "measured", "f16 matrix")
DRAM = Ceiling(4.8e12, "B/s", "peak", "DRAM")


def point(tflops: float = 300.0, intensity: float = 512.0, *ceilings: Ceiling) -> RooflinePoint:
    """A call at this place of the diagram."""
    flops = tflops * 1e12 * 1e-4
    rates = {"flops_per_s": tflops * 1e12, "bytes_per_s": tflops * 1e12 / intensity, "intensity": intensity}
    return RooflinePoint(
        100.0, flops, flops / intensity, **rates, share=0.4, ceilings=ceilings or (PEAK, MEASURED, DRAM)
    )


@pytest.fixture(autouse=True)
def matplotlib() -> None:
    """These tests draw."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install pytest-attnperf[plots]")


def roofline_svg(points: Sequence[Named], title: str) -> str:
    """What a .svg of these points holds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "roof.svg"
        write_plot(path, points, title)
        return path.read_text(encoding="utf-8")


def texts(svg: str) -> list[str]:
    """Every text of a diagram, in order."""
    root = ElementTree.fromstring(svg)
    return ["".join(node.itertext()).strip() for node in root.iter("{http://www.w3.org/2000/svg}text")]


def test_ceilings_points_and_key_are_there() -> None:
    """Peak and measured figures of each ceiling, a number beside each point, and its name, class, share and time."""
    points = [("triton.flash/a", point(), BoundClass.COMPUTE), ("hip.naive/b", point(5, 128), BoundClass.UNDECIDED)]
    found = texts(roofline_svg(points, "NVIDIA H200"))
    assert "f16 matrix: peak 1,070, measured 760 TFLOP/s" in found
    assert "DRAM: peak 4,800 GB/s" in found
    assert found.count("1") >= 2
    assert found.count("2") >= 2
    assert "triton.flash/a" in found
    assert "compute, 40 % of its roof, 100.0 us" in found
    assert "undecided, 40 % of its roof, 100.0 us" in found
    assert "NVIDIA H200" in found


def test_measured_ceilings_are_solid_and_peaks_dashed() -> None:
    """One solid line for the calibration, dashed ones for the data sheet."""
    svg = roofline_svg([("a", point(300, 512, PEAK, DRAM), BoundClass.COMPUTE)], "")
    both = roofline_svg([("a", point(300, 512, PEAK, MEASURED, DRAM), BoundClass.COMPUTE)], "")
    dashes = "stroke-dasharray: 3.7,1.6"
    assert svg.count(dashes) == both.count(dashes) == 2


def test_the_same_points_give_the_same_file() -> None:
    """No date, no random ids: a diagram in a repository changes only with its points."""
    points = [(f"case {index}", point(3.0 * index + 1), BoundClass.MEMORY) for index in range(3)]
    first = roofline_svg(points, "H200")
    assert roofline_svg(points, "H200") == first
    assert "<dc:date>" not in first


def test_the_users_settings_change_nothing() -> None:
    """A matplotlibrc with other colours and TeX leaves the diagram as it is, and is as before afterwards."""
    import matplotlib

    points = [("a_b", point(), BoundClass.CACHE)]
    plain = roofline_svg(points, "H200")
    with matplotlib.rc_context({"text.usetex": True, "axes.facecolor": "black"}):
        assert roofline_svg(points, "H200") == plain
        assert matplotlib.rcParams["text.usetex"] is True


@pytest.mark.parametrize(
    "name",
    [
        "costs $5 and $\\frac{1}{0}$",
        "<script>alert(1)</script>",
        "a & b --> </text>",
        'quote" onload="x',
        "über 日本 \U0001f600",
    ],
)
def test_names_are_text(name: str) -> None:
    """A name from a file is shown as it is: no formula, no markup."""
    svg = roofline_svg([(name, point(), BoundClass.LATENCY)], name)
    assert texts(svg).count(name) == 2
    assert "<script" not in svg


def test_characters_that_xml_forbids() -> None:
    """Control characters, lone surrogates and line ends become blanks, and a long name is cut."""
    name = "a\x00b\x1b[31mc\nd\ud800e" + "x" * 300
    (found,) = [
        text for text in texts(roofline_svg([(name, point(), BoundClass.LATENCY)], "")) if text.startswith("a b")
    ]
    assert len(found) <= 84
    assert found.startswith("a b [31mc d e")


def test_points_that_cannot_be_drawn_are_counted() -> None:
    """A copy has no FLOPs: the key says how many are left out, and all of them being so is an error."""
    copy = RooflinePoint(100.0, None, 1e9, None, 1e13, None)
    svg = roofline_svg([("a", point(), BoundClass.COMPUTE), ("copy", copy, BoundClass.MEMORY)], "")
    assert "1 without FLOPs, bytes or a time cannot be drawn" in texts(svg)
    with pytest.raises(UsageError, match="none of 1 points has FLOPs, bytes and a time"):
        roofline_svg([("copy", copy, BoundClass.MEMORY)], "")


@pytest.mark.parametrize("ceilings", [(PEAK,), (DRAM,), (MEASURED, DRAM)])
def test_any_ceilings(ceilings: tuple[Ceiling, ...]) -> None:
    """One kind of ceiling is enough for a diagram."""
    found = texts(roofline_svg([("a", point(300, 512, *ceilings), BoundClass.COMPUTE)], ""))
    assert all(any(text.startswith(ceiling.what) for text in found) for ceiling in ceilings)


def test_a_point_without_ceilings() -> None:
    """A device of which nothing is known still has points."""
    bare = RooflinePoint(100.0, 1e9, 1e6, 1e13, 1e10, 1000.0)
    assert "undecided, 100.0 us" in texts(roofline_svg([("a", bare, BoundClass.UNDECIDED)], ""))


def test_every_class_has_its_own_marker_and_colour() -> None:
    """Classes are told apart by shape and by colour."""
    assert STYLES.keys() == set(BoundClass)
    assert len({marker for marker, _ in STYLES.values()}) == len({colour for _, colour in STYLES.values()}) == 6


def test_png_by_suffix(tmp_path: Path) -> None:
    """A .png is 1000 pixels wide, and the same each time."""
    first, second = tmp_path / "roof.png", tmp_path / "new" / "roof.PNG"
    for path in (first, second):
        write_plot(path, [("a", point(), BoundClass.COMPUTE)], "H200")
    data = first.read_bytes()
    assert data == second.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert struct.unpack(">I", data[16:20]) == (1000,)


def test_another_suffix(tmp_path: Path) -> None:
    """A .pdf is refused with what is known, before anything is written."""
    with pytest.raises(UsageError, match=r"cannot be written as 'roof\.pdf'; known are \.svg and \.png"):
        write_plot(tmp_path / "roof.pdf", [("a", point(), BoundClass.COMPUTE)], "H200")
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the extra to install."""
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=r"needs matplotlib .*pip install 'pytest-attnperf\[plots\]'"):
        roofline_svg([("a", point(), BoundClass.COMPUTE)], "")
