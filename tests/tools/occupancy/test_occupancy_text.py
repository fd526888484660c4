from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from pytest_attnperf.codeobject.headroom import OccupancyStair, ResourceSaving, compute_staircase
from pytest_attnperf.codeobject.occupancy import Resources
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.records.code import Occupancy
from pytest_attnperf.tools.occupancy import occupancy_text as module
from pytest_attnperf.tools.occupancy.occupancy_text import (
    ASCII,
    UNICODE,
    LimitRow,
    PlotInk,
    UseRow,
    choose_ink,
    describe_occupancy,
    format_count,
    format_sizes,
    occupancy_json,
    render_limit_table,
    render_savings,
    render_staircase,
    render_use_table,
)

FIVE = Occupancy(5, 5.0, 8, 5, 4, {"vgprs": 5, "lds": 8}, ("vgprs",))
STAIRS = (OccupancyStair(1, 64, 4, 4.0), OccupancyStair(65, 128, 3, 2.0), OccupancyStair(129, 256, 1, 1.0))

ASKED = Resources(96, 0, 40, 8192, 256)


def test_the_answer() -> None:
    """Waves of how many, what binds, and how many whole workgroups of how many waves in which block."""
    assert describe_occupancy("gfx942", FIVE) == (
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
    assert expected in describe_occupancy("a", replace(FIVE, **changed))  # type: ignore[arg-type]


def test_counted() -> None:
    """One of a thing is singular, and thousands are told apart."""
    assert [format_count(count, "wave") for count in (0, 1, 2, 8192)] == ["0 waves", "1 wave", "2 waves", "8,192 waves"]


def test_tables() -> None:
    """What binds is marked, and where nothing does there is no column for it."""
    bound = LimitRow("VGPRs", "512 per SIMD lane", "96 per lane", "5 waves per SIMD", 5, True)
    free = LimitRow("LDS", "65,536 bytes", "none", "no limit", 8, False)
    lines = render_limit_table([bound, free], "CU").splitlines()
    assert lines[0].split() == ["a", "CU", "holds", "taken", "allows", "waves/SIMD"]
    assert lines[2].endswith("5  <- binds")
    assert lines[3].endswith("8")
    assert render_limit_table([free], "WGP").splitlines()[1].count(" -") == 4
    used = render_use_table([UseRow("LDS", "1 byte", "512 bytes (granule 512)"), UseRow("AGPRs", "0 per lane", "")])
    assert used.splitlines()[2:] == ["LDS          1 byte      512 bytes (granule 512)", "AGPRs        0 per lane"]


def test_savings() -> None:
    """One way stands in the line; several get one each; savings that are needed together are joined."""
    few, byte = ResourceSaving("vgprs", 1, 64), ResourceSaving("lds_bytes", 1, 65536)
    assert render_savings("more", [(ResourceSaving("vgprs", 8, 128),)]) == ["more: 8 VGPRs fewer (at most 128)"]
    assert render_savings("more", [(few, byte), (ResourceSaving("agprs", 4, 60), ResourceSaving("sgprs", 2, 80))]) == [
        "more:",
        "  1 VGPR fewer (at most 64) and 1 byte of LDS fewer (at most 65,536)",
        "  or 4 AGPRs fewer (at most 60) and 2 SGPRs fewer (at most 80)",
    ]
    assert render_savings("more", [(ResourceSaving("lds_bytes", 2048, 0),)]) == [
        "more: 2,048 bytes of LDS fewer (at most 0)"
    ]
    assert format_sizes((512, 1024)) == "workgroups of 512 or 1,024 threads"


def test_a_plot() -> None:
    """Each column shows the waves of its values, steps go down, dots are whole workgroups, and the kernel is marked."""
    assert render_staircase("VGPRs", STAIRS, 100, 4, ASCII) == [
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
    lines = render_staircase("VGPRs", STAIRS, at, 4, UNICODE)
    assert [(number, line.index("●") - 5) for number, line in enumerate(lines) if "●" in line[5:] and number] == [
        (row, column)
    ]


def test_no_note_without_dots() -> None:
    """Dots are explained only where there are any; a kernel without LDS is marked at the left edge."""
    lines = render_staircase("bytes of LDS", (OccupancyStair(0, 65536, 2, 2.0),), 0, 2, UNICODE)
    assert lines[0] == "waves per SIMD by bytes of LDS, ● this kernel (0)"
    assert lines[1] == "  2 │●" + "─" * 63
    assert lines[-1] == "               16,384          32,768          49,152          65,536"


@pytest.mark.parametrize("top", [256, 65536, 163840, 163841, 7])
@pytest.mark.parametrize("ink", [ASCII, UNICODE])
def test_plots_are_narrow(top: int, ink: PlotInk) -> None:
    """Whatever the range, no line of a plot is wider than 69 columns, and in ASCII it is ASCII."""
    lines = render_staircase("VGPRs", (OccupancyStair(0, 3, 16, 15.5), OccupancyStair(4, top, 1, 1.0)), top, 16, ink)
    assert max(map(len, lines)) == 69
    assert all(line.isascii() for line in lines) == (ink is ASCII)


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [("utf-8", UNICODE), ("UTF-8", UNICODE), ("ascii", ASCII), ("latin-1", ASCII), (None, ASCII), ("no-such", ASCII)],
)
def test_ink_follows_the_output(encoding: str | None, expected: PlotInk) -> None:
    """Lines are drawn only where the output can show them."""
    assert choose_ink(encoding) is expected


def test_figures_of_a_kernel() -> None:
    """What is asked for, handed out, held, allowed and saved stands under keys that carry the unit."""
    found = occupancy_json("gfx942", ASKED, "prefill")
    assert (found["name"], found["arch"]) == ("prefill", "gfx942")
    assert found["resources"] == {
        "vgprs_per_lane": 96,
        "agprs_per_lane": 0,
        "sgprs_per_wave": 40,
        "lds_bytes_per_workgroup": 8192,
        "threads_per_workgroup": 256,
        "wave_size_lanes": 64,
        "reserved_vgprs_per_lane": 0,
        "reserved_sgprs_per_wave": 0,
        "wgp_mode": None,
    }
    assert found["allocated"] == {"vgprs_per_lane": 96, "sgprs_per_wave": 64, "lds_bytes_per_workgroup": 8192}
    assert found["occupancy"] == {
        "waves_per_simd": 5,
        "whole_waves_per_simd": 5.0,
        "max_waves_per_simd": 8,
        "workgroups_per_block": 5,
        "waves_per_workgroup": 4,
        "limiters": ["vgprs"],
        "fits": True,
    }
    assert found["limits_waves_per_simd"] == {"vgprs": 5, "lds": 8, "sgprs": 8, "workgroups": 8, "slots": 8}
    one_more = {
        "ways": [[{"resource": "vgprs", "fewer": 16, "value": 80}]],
        "threads_per_workgroup": [],
        "waves_per_simd_after": 6,
        "whole_waves_per_simd_after": 6.0,
    }
    assert found["raise"] == {"one_wave_per_simd": one_more, "one_workgroup_per_block": one_more}


def test_what_a_block_holds() -> None:
    """The figures are those of the block, mode and wave size that the kernel runs in."""
    wave64_on_a_cu = Resources(96, 0, 40, 8192, 256, 64, wgp_mode=False)
    assert occupancy_json("gfx1100", wave64_on_a_cu)["holds"] == {
        "block": "CU",
        "simds": 2,
        "vgprs_per_simd_lane": 768,
        "vgpr_granule": 12,
        "sgprs_per_simd": None,
        "lds_bytes": 65536,
        "lds_bytes_per_workgroup_most": 65536,
        "lds_granule_bytes": 1024,
        "workgroups_most": 16,
    }


def test_stairs_are_those_of_the_plots() -> None:
    """Breakpoints over VGPRs and over LDS are written out."""
    assert occupancy_json("gfx942", ASKED)["staircases"] == {
        "vgprs_per_lane": [asdict(stair) for stair in compute_staircase("gfx942", ASKED, "vgprs")],
        "lds_bytes_per_workgroup": [asdict(stair) for stair in compute_staircase("gfx942", ASKED, "lds_bytes")],
    }


def test_nothing_to_gain_and_nothing_that_helps() -> None:
    """Null where occupancy is full; no way, no size and no figures where nothing helps."""
    full = occupancy_json("gfx1151", Resources(8, 0, 128, 1536, 256))
    assert full["raise"] == {"one_wave_per_simd": None, "one_workgroup_per_block": None}
    stuck = occupancy_json("gfx942", Resources(72, 0, 40, 0, 896))
    nothing = {
        "ways": [],
        "threads_per_workgroup": [],
        "waves_per_simd_after": None,
        "whole_waves_per_simd_after": None,
    }
    assert stuck["raise"] == {"one_wave_per_simd": nothing, "one_workgroup_per_block": nothing}


def test_every_key_is_documented() -> None:
    """The object is plain JSON, and the module's text names every key in it."""
    found = json.loads(json.dumps(occupancy_json("gfx950", ASKED)))
    keys = {key for part in [found, *found.values()] if isinstance(part, dict) for key in part}
    keys |= set(found["raise"]["one_wave_per_simd"]) | set(found["staircases"]["vgprs_per_lane"][0])
    assert module.__doc__ is not None
    assert sorted(key for key in keys if key not in module.__doc__) == []


def test_an_impossible_kernel() -> None:
    """A kernel that cannot be has no object."""
    with pytest.raises(CodeObjectError, match="vgprs 300"):
        occupancy_json("gfx942", Resources(300, 0, 40, 0, 256))
