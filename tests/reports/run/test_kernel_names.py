from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_attnperf.reports.run.kernel_names import middle_cut, short_name

MUL = "at::native::AUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >"


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
    assert len(middle_cut(name, width)) <= width
