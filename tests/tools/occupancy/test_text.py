from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_attnperf.codeobject.headroom import Saving, Stair
from pytest_attnperf.records.code import Occupancy
from pytest_attnperf.tools.occupancy.text import (
    ASCII,
    UNICODE,
    Ink,
    LimitRow,
    UseRow,
    answer,
    counted,
    ink_for,
    limit_table,
    plot_lines,
    savings_lines,
    sizes_text,
    use_table,
)

FIVE = Occupancy(5, 5.0, 8, 5, 4, {"vgprs": 5, "lds": 8}, ("vgprs",))
STAIRS = (Stair(1, 64, 4, 4.0), Stair(65, 128, 3, 2.0), Stair(129, 256, 1, 1.0))


def test_the_answer() -> None:
    """Waves of how many, what binds, and how many whole workgroups of how many waves in which block."""
    assert answer("gfx942", FIVE) == (
        "gfx942: 5 of 8 waves per SIMD, limited by VGPRs; 5 whole workgroups of 4 waves per CU"
    )


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"limiters": ("vgprs", "lds")}, "a: 5 of 8 waves per SIMD, limited by VGPRs and LDS; 5 whole workgroups of 4"),
        ({"limiters": ("sgprs", "slots")}, "limited by SGPRs and wave slots;"),
        ({"limiters": ("workgroups",)}, "limited by barriers;"),
        ({"limiters": (), "waves_per_simd": 8}, "a: 8 of 8 waves per SIMD, the most there are; "),
        (
            {"whole_waves_per_simd": 2.0, "workgroups": 1},
            "; 1 whole workgroup of 4 waves per CU, which is 2 waves per SIMD",
        ),
        ({"whole_waves_per_simd": 4.5, "block": "WGP"}, "per WGP, which is 4.5 waves per SIMD"),
        ({"waves_per_workgroup": 1}, "5 whole workgroups of 1 wave per CU"),
        (
            {"fits": False, "limiters": ("lds",)},
            "a: not one workgroup fits a CU, no launch would succeed: limited by LDS",
        ),
    ],
)
def test_other_answers(changed: dict[str, object], expected: str) -> None:
    """Several limiters, none, a hardware that runs less than the compiler counts, and nothing that fits."""
    assert expected in answer("a", replace(FIVE, **changed))  # type: ignore[arg-type]


def test_counted() -> None:
    """One of a thing is singular, and thousands are told apart."""
    assert [counted(count, "wave") for count in (0, 1, 2, 8192)] == ["0 waves", "1 wave", "2 waves", "8,192 waves"]


def test_tables() -> None:
    """What binds is marked, and where nothing does there is no column for it."""
    bound = LimitRow("VGPRs", "512 per SIMD lane", "96 per lane", "5 waves per SIMD", 5, True)
    free = LimitRow("LDS", "65,536 bytes", "none", "no limit", 8, False)
    lines = limit_table([bound, free], "CU").splitlines()
    assert lines[0].split() == ["a", "CU", "holds", "taken", "allows", "waves/SIMD"]
    assert lines[2].endswith("5  <- binds")
    assert lines[3].endswith("8")
    assert limit_table([free], "WGP").splitlines()[1].count(" -") == 4
    used = use_table([UseRow("LDS", "1 byte", "512 bytes (granule 512)"), UseRow("AGPRs", "0 per lane", "")])
    assert used.splitlines()[2:] == ["LDS            1 byte      512 bytes (granule 512)", "AGPRs          0 per lane"]


def test_savings() -> None:
    """One way stands in the line; several get one each; savings that are needed together are joined."""
    few, byte = Saving("vgprs", 1, 64), Saving("lds_bytes", 1, 65536)
    assert savings_lines("more", [(Saving("vgprs", 8, 128),)]) == ["more: 8 VGPRs fewer (at most 128)"]
    assert savings_lines("more", [(few, byte), (Saving("agprs", 4, 60), Saving("sgprs", 2, 80))]) == [
        "more:",
        "  1 VGPR fewer (at most 64) and 1 byte of LDS fewer (at most 65,536)",
        "  or 4 AGPRs fewer (at most 60) and 2 SGPRs fewer (at most 80)",
    ]
    assert savings_lines("more", [(Saving("lds_bytes", 2048, 0),)]) == ["more: 2,048 bytes of LDS fewer (at most 0)"]
    assert sizes_text((512, 1024)) == "workgroups of 512 or 1,024 threads"


def test_a_plot() -> None:
    """Each column shows the waves of its values, steps go down, dots are whole workgroups, and the kernel is marked."""
    assert plot_lines("VGPRs", STAIRS, 100, 4, ASCII) == [
        "waves per SIMD by VGPRs, o this kernel (100), . in whole workgroups",
        "  4 |----------------+",
        "  3 |                +-------o-------+",
        "  2 |                ................|",
        "  1 |                                +-------------------------------",
        "  0 |",
        "    +----------------------------------------------------------------",
        "                   64             128             192             256",
    ]


@pytest.mark.parametrize(
    ("at", "row", "column"), [(1, 1, 0), (4, 1, 0), (5, 1, 1), (64, 1, 15), (65, 2, 16), (256, 4, 63)]
)
def test_the_mark_is_where_the_kernel_is(at: int, row: int, column: int) -> None:
    """The mark stands in the row of the kernel's own waves and the column of its value."""
    lines = plot_lines("VGPRs", STAIRS, at, 4, UNICODE)
    assert [(number, line.index("●") - 5) for number, line in enumerate(lines) if "●" in line[5:] and number] == [
        (row, column)
    ]


def test_no_note_without_dots() -> None:
    """Dots are explained only where there are any; a kernel without LDS is marked at the left edge."""
    lines = plot_lines("bytes of LDS", (Stair(0, 65536, 2, 2.0),), 0, 2, UNICODE)
    assert lines[0] == "waves per SIMD by bytes of LDS, ● this kernel (0)"
    assert lines[1] == "  2 │●" + "─" * 63
    assert lines[-1] == "               16,384          32,768          49,152          65,536"


@pytest.mark.parametrize("top", [256, 65536, 163840, 163841, 7])
@pytest.mark.parametrize("ink", [ASCII, UNICODE])
def test_plots_are_narrow(top: int, ink: Ink) -> None:
    """Whatever the range, no line of a plot is wider than 69 columns, and in ASCII it is ASCII."""
    lines = plot_lines("VGPRs", (Stair(0, 3, 16, 15.5), Stair(4, top, 1, 1.0)), top, 16, ink)
    assert max(map(len, lines)) == 69
    assert all(line.isascii() for line in lines) == (ink is ASCII)


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [("utf-8", UNICODE), ("UTF-8", UNICODE), ("ascii", ASCII), ("latin-1", ASCII), (None, ASCII), ("no-such", ASCII)],
)
def test_ink_follows_the_output(encoding: str | None, expected: Ink) -> None:
    """Lines are drawn only where the output can show them."""
    assert ink_for(encoding) is expected
