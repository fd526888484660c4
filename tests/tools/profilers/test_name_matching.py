from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_attnperf.tools.profilers.name_matching import Match, match_names, normalise_name, shorten_name

MUL_MAT = "void mul_mat_q<(ggml_type)2, 128, false>(char const*, int const*, float*, int) [clone .kd]"
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("flash", "flash"),
        ("flash.kd", "flash"),
        (MUL_MAT, "mul_mat_q<(ggml_type)2, #, #>"),
        ("void f<float, 128>(float*)", "f<float, #>"),
        ("void f<__half, 128>(float*)", "f<__half, #>"),
        ("Cijk_Alik_Bljk_HHS_BH_Bias_HA_S_SAV_MT64x64x16_MI16x16_SN", "Cijk_Alik_Bljk_HHS_BH_Bias_HA_S_SAV"),
        ("void (anonymous namespace)::scan<int, 4>(int*)", "(anonymous namespace)::scan<int, #>"),
        ("triton_poi_fused_add_3", "triton_poi_fused_add_3"),
        ("f<&(g->h)>", "f<&(g->h)>"),
        ("", ""),
    ],
)
def test_normalised(name: str, expected: str) -> None:
    """Numbers of templates, tile sizes and arguments are left out; types, casts and digits of names stay."""
    assert normalise_name(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (MUL_MAT, "mul_mat_q"),
        (ADD, "at::native::vectorized_elementwise_kernel"),
        ("HOST_TO_DEVICE", "HOST_TO_DEVICE"),
        ("C" * 61, "C" * 35 + "..." + "C" * 22),
        (
            "Cijk_Alik_Bljk_HHS_BH_MT64x64x32_MI16x16x1_SN_LDSB0_AFC1_NLCA3",
            "Cijk_Alik_Bljk_HHS_BH_MT64x64x32_MI...x1_SN_LDSB0_AFC1_NLCA3",
        ),
        ("C" * 60, "C" * 60),
    ],
)
def test_short_name(name: str, expected: str) -> None:
    """A name in a sentence has no arguments, and at most 60 characters."""
    assert shorten_name(name) == expected


def test_exact_names_come_first() -> None:
    """A kernel that both have keeps to itself, though another's normalised name is the same."""
    found = match_names(["f<1>(int)", "f<2>(int)"], ["f<2>(int)", "f<3>(int)"])
    assert found == (
        Match("f<2>(int)", ("f<2>(int)",), ("f<2>(int)",)),
        Match("f<#>", ("f<1>(int)",), ("f<3>(int)",)),
    )
    assert [match.is_exact for match in found] == [True, False]


def test_tiles_are_matched_as_a_group() -> None:
    """Tensile kernels that differ by tile only are one work, however many there are on each side."""
    (found,) = match_names(["Cijk_A_HB_MT64x64x16_X", "Cijk_A_HB_MT32x32x16_X"], ["Cijk_A_HB_MT128x64x32_Y"])
    assert (found.name, len(found.before), len(found.after)) == ("Cijk_A_HB", 2, 1)


def test_other_types_are_no_match() -> None:
    """An addition that is gone and a multiplication that is new are not the same work."""
    multiply = ADD.replace("add", "mul")
    assert match_names([ADD], [multiply]) == (Match(ADD, (ADD,), ()), Match(multiply, (), (multiply,)))


@given(
    st.sets(st.text("<>(),:3a ->", max_size=12), max_size=6), st.sets(st.text("<>(),:3a ->", max_size=12), max_size=6)
)
def test_every_name_is_in_one_match(before: set[str], after: set[str]) -> None:
    """Whatever brackets names have, each is matched once on its side."""
    found = match_names(sorted(before), sorted(after))
    assert sorted(name for match in found for name in match.before) == sorted(before)
    assert sorted(name for match in found for name in match.after) == sorted(after)


def test_long_names_take_no_time() -> None:
    """A name of 200,000 open brackets is read in one pass."""
    assert normalise_name("f" + "<" * 200_000) == "f" + "<" * 200_000
