from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_attnperf.records.code import Occupancy
from pytest_attnperf.records.profiles import Size3
from pytest_attnperf.reports.run.profile_figures import (
    cut_middle,
    format_count,
    format_percent,
    format_signed_percent,
    format_size,
    format_waves,
    make_ns_cell,
    short_name,
    tell_apart,
)
from pytest_attnperf.reports.text.time_cells import TimeCell

MUL = "at::native::AUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >"


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (None, "-"), (0.0, "0 %"), (1.0, "100.0 %"), (0.776, "77.6 %"), (0.01523, "1.52 %"), (0.000577, "0.058 %"),
        (-0.2, "-20.0 %"), (math.inf, "without limit"),
    ],
)  # fmt: skip
def test_a_small_share_keeps_its_digits(share: float | None, expected: str) -> None:
    """Two gains of 0.03 % and 0.06 % do not both print as 0.0 %."""
    assert format_percent(share) == expected


def test_nanoseconds_are_times_of_a_table() -> None:
    """A cell holds microseconds, whose unit the table chooses; what is not known stays unknown."""
    assert (make_ns_cell(30_100), make_ns_cell(None)) == (TimeCell(30.1), TimeCell(None))


@pytest.mark.parametrize(
    ("ratio", "expected"), [(None, "-"), (0.957, "-4.3 %"), (1.0, "0.0 %"), (2.5, "+150.0 %"), (math.inf, "-")]
)
def test_changes_are_signed(ratio: float | None, expected: str) -> None:
    """A change says its direction; one from nothing says none."""
    assert format_signed_percent(ratio) == expected


@pytest.mark.parametrize(("number", "expected"), [(None, "-"), (1953, "1,953"), (60.8, "60.8"), (0.25, "0.25")])
def test_counts(number: float | None, expected: str) -> None:
    """Counts have separators; calls per pass may be a fraction."""
    assert format_count(number) == expected


@pytest.mark.parametrize(
    ("size", "expected"),
    [(None, "-"), ((32, 8, 1), "32x8"), ((256, 1, 1), "256"), ((1, 1, 1), "1"), ((1, 1, 4), "1x1x4")],
)
def test_sizes_without_trailing_ones(size: Size3 | None, expected: str) -> None:
    """A workgroup prints as it is written in launches."""
    assert format_size(size) == expected


def test_waves_name_their_limiter() -> None:
    """Waves per SIMD stand beside the most there can be and what keeps more out."""
    found = Occupancy(5, 4.5, 8, 9, 2, {"vgprs": 5}, ("vgprs",))
    assert format_waves(found) == "4.5/8 vgprs"
    assert format_waves(None) == "-"
    assert format_waves(Occupancy(0, 0, 8, 0, 2, {}, ("lds",), fits=False)) == "does not fit"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("__amd_rocclr_copyBuffer", "__amd_rocclr_copyBuffer"),
        ("subtract_kernel(float*, float const*, int)", "subtract_kernel"),
        ("void addition_kernel<float>(float*, float const*)", "addition_kernel<float>"),
        ("void mul_mat_q<(ggml_type)2, 128>(char const*, int) [clone .kd]", "mul_mat_q<(ggml_type)2, 128>"),
        ("(anonymous namespace)::softmax_warp(float*)", "(anonymous namespace)::softmax_warp"),
        (f"void at::native::vectorized<4, {MUL} >(int, {MUL})", f"at::native::vectorized<4, {MUL} >"),
        ("Cijk_Ailk_Bljk_HB_MT128x128x16", "Cijk_Ailk_Bljk_HB_MT128x128x16"),
        ("", ""),
    ],
)  # fmt: skip
def test_parameters_are_left_out(name: str, expected: str) -> None:
    """Return type and parameters go; template arguments, which tell kernels apart, stay."""
    assert short_name(name, 400) == expected


def test_a_long_name_keeps_both_ends() -> None:
    """What is too long loses its middle, because names of one library differ at their end."""
    cut = short_name("Cijk_Ailk_Bljk_" + "x" * 200 + "_WG32_8_1", 40)
    assert len(cut) == 40
    assert cut.startswith("Cijk_Ailk")
    assert cut.endswith("_WG32_8_1")


def test_an_escape_sequence_does_not_reach_the_terminal() -> None:
    """A name from a file cannot repaint what stands beside it."""
    assert "\x1b" not in short_name("bad\x1b[2Jname", 40)


@given(st.text(max_size=300), st.integers(min_value=0, max_value=80))
def test_no_name_is_wider_than_its_column(name: str, width: int) -> None:
    """Whatever a file says, the column keeps its width."""
    assert len(short_name(name, width)) <= width
    assert len(cut_middle(name, width)) <= width


TENSILE = "Cijk_Alik_Bljk_HHS_BH_MT{}_MI16x16x1_SN_LDSB0_AFC1_AFEM1_AFEM1_ASEM1_CLR1_CADS0_GRVWA8"


def test_names_that_look_alike_keep_where_they_differ() -> None:
    """Two Tensile kernels that differ in their tile alone show it; one whose end differs shows the end."""
    names = [TENSILE.format(tile) for tile in ("64x64x32", "128x64x32", "64x64x32")]
    found = tell_apart([*names[:2], "flash"], 36)
    assert all(len(cut) == 36 for name, cut in found.items() if name != "flash")
    assert "MT64x64" in found[names[0]]
    assert "MT128x64" in found[names[1]]
    assert found["flash"] == "flash"
    assert tell_apart([names[0], names[0] + "_NLCA1"], 36)[names[0] + "_NLCA1"].endswith("_NLCA1")


@given(st.lists(st.text(max_size=60), max_size=8, unique=True), st.integers(min_value=12, max_value=40))
def test_names_told_apart_fit_their_column(names: list[str], width: int) -> None:
    """Whatever a file says, a name keeps to the width, and every one is there."""
    found = tell_apart(names, width)
    assert set(found) == set(names)
    assert all(len(cut) <= width for cut in found.values())
