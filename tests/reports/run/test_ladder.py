from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from pytest_attnperf.records import CaseKey, DeviceInfo, Fingerprint, Launch, Verdict
from pytest_attnperf.records.code import CodeResult, KernelCode, Occupancy
from pytest_attnperf.records.counters import KernelCounter
from pytest_attnperf.reports.run.ladder import LEGEND, compiled_tables, header_lines, held_to, ladder_tables
from pytest_attnperf.reports.run.ladder_cases import Ladder
from pytest_attnperf.reports.text.wide_tables import Table, terminal
from pytest_attnperf.results import CaseResult, RunResult

CaseFactory: TypeAlias = Callable[..., CaseResult]
RunFactory: TypeAlias = Callable[..., RunResult]

COUNTS = {"global_load_16B": 20, "global_load_lds_16B": 4, "global_store_4B": 4, "global_atomic": 1, "matrix": 32}
LOOPS = {"global_load_16B": 8, "matrix": 32}
FULL = Occupancy(16, 16.0, 16, 8, 8, {"vgprs": 16}, ())
BOUND = Occupancy(5, 4.0, 16, 2, 8, {"vgprs": 5, "lds": 5}, ("vgprs", "lds"))


def code(name: str = "flash", **changed: Any) -> KernelCode:
    """A kernel of an NVIDIA GPU whose ISA hash is its name."""
    own = KernelCode(
        name, "sm_90", 96, 0, 96, 0, None, None, 0, 4096, 1024, 64, 256, 256, 32, None, False, 64, name, COUNTS, LOOPS
    )
    return replace(own, **changed)


def launch(name: str = "flash") -> Launch:
    """A launch of the kernel of this name."""
    return Launch(name, grid=(8, 1, 1), block=(256, 1, 1), isa_hash=name)


def shown(
    *cases: CaseResult, occupancy: Occupancy | None = BOUND, counters: tuple[KernelCounter, ...] = (), **of: Any
) -> list[Table]:
    """The tables of one ladder."""
    ladder = Ladder("prefill", cases, of.get("base_us", 100.0), "native.sdpa_flash", of.get("against_us", 10.0))
    return ladder_tables(ladder, lambda _: occupancy, counters)


def cells(table: Table) -> list[dict[str, str]]:
    """Rows by header."""
    headers = [table.corner, *(column.header for column in table.columns)]
    return [dict(zip(headers, row, strict=True)) for row in table.rows]


def test_a_row_of_a_backend(case: CaseFactory) -> None:
    """Time, both ratios and both rates, and what is known of the one kernel that it launched."""
    (table,) = shown(case("hip.flash", median_us=20.0, code=(code(),), launches=(launch(),)))
    assert cells(table) == [
        {
            "backend": "hip.flash",
            "us": "20.00",
            "speedup": "5.00x",
            "% of sdpa_flash": "50.0",
            "GB/s": "1678",
            "TFLOP/s": "855",
            "LDS B": "5120",
            "regs": "96",
            "waves/SIMD": "5 (4) of 16",
            "limit": "registers, LDS",
            "loads": "24/8",
            "stores": "4/0",
            "matrix": "32/32",
            "spills": "0",
        }
    ]


def test_what_is_not_known_is_no_zero(case: CaseFactory) -> None:
    """A library's kernel, a workload without figures, and a base or other backend without a time: '-'."""
    bare = case("ck", median_us=20.0, figures=None, launches=(launch(),))
    (table,) = shown(bare, base_us=None, against_us=None)
    assert table.rows == (("ck", "20.00", *("-" for _ in table.columns[1:])),)
    unread = code(instructions={}, in_loops={}, undecoded="no disassembler", scratch_bytes=64)
    (table,) = shown(case("ck", code=(unread,)), occupancy=None)
    assert table.rows[0][6:] == ("5120", "96", "-", "-", "-", "-", "-", "64 B")
    (table,) = shown(case("ck", code=(code(undecoded="loops: indirect branches"),)), occupancy=FULL)
    assert table.rows[0][8:12] == ("16 of 16", "full", "24/-", "4/-")


@pytest.mark.parametrize("verdict", [Verdict.INCORRECT, Verdict.UNSUPPORTED, Verdict.ERROR, Verdict.SUSPICIOUS])
def test_a_case_without_a_right_time_shows_its_word(case: CaseFactory, verdict: Verdict) -> None:
    """No figure of it is printed, and a note says why, once for all backends of which it is said."""
    broken = {"verdict": verdict, "summary": "because", "code": (code(),)}
    (table,) = shown(case("hip.flash", **broken), case("ck", **broken))
    assert [row[:2] for row in table.rows] == [("hip.flash", verdict.value), ("ck", verdict.value)]
    assert {cell for row in table.rows for cell in row[2:]} == {"-"}
    assert table.notes == (f"hip.flash, ck: {verdict.value}: because",)


def test_a_case_that_was_not_timed_says_so(case: CaseFactory) -> None:
    """RIGHT without a time stands beside timed cases; an INCOMPARABLE time is shown, and why it is so called."""
    right = case("hip.flash", verdict=Verdict.RIGHT, median_us=None, summary="right; not timed")
    other = case("ck", verdict=Verdict.INCOMPARABLE, summary="no baseline of this product")
    (table,) = shown(right, other)
    assert [row[1] for row in table.rows] == ["RIGHT, not timed", "26.10"]
    assert table.notes == ("hip.flash: RIGHT: right; not timed", "ck: INCOMPARABLE: no baseline of this product")


def test_several_kernels_have_rows_of_their_own(case: CaseFactory) -> None:
    """The time belongs to the call; registers belong to each kernel, and those of unknown code are counted."""
    launches = (launch("split"), launch("reduce"), replace(launch("cast"), isa_hash=""))
    split = case("hip.split", code=(code("split"), code("reduce", vgprs=32)), launches=launches)
    (table,) = shown(split)
    assert [(row[0], row[1], row[7]) for row in table.rows] == [
        ("hip.split", "26.10", ""),
        ("hip.split: split", "", "96"),
        ("hip.split: reduce", "", "32"),
        ("hip.split: 1 more of unknown code", "", "-"),
    ]


def test_amd_registers_and_spills(case: CaseFactory) -> None:
    """AGPRs stand beside VGPRs, and spills are counted by kind."""
    spilling = code(arch="gfx942", vgprs=128, agprs=64, vgpr_spills=4, sgpr_spills=1)
    (table,) = shown(case("hip.flash", code=(spilling,)))
    assert (table.rows[0][7], table.rows[0][-1]) == ("128+64a", "4 VGPRs, 1 SGPR")
    (table,) = shown(case("hip.flash", code=(replace(spilling, vgpr_spills=0, sgpr_spills=0),)))
    assert table.rows[0][-1] == "0"


def test_counters_have_a_table_of_their_own(case: CaseFactory) -> None:
    """Exactly those that were found of the launched kernels; of a case without a time none."""
    counters = (
        KernelCounter("flash", 2048, "SQ_INSTS_VMEM_RD", 1234567.5, 3),
        KernelCounter("flash", 64, "SQ_WAVES", 1.0, 3),
    )
    _, found = shown(case("hip.flash", launches=(launch(),)), counters=counters)
    assert found.rows == (("hip.flash: flash", "SQ_INSTS_VMEM_RD", "1,234,567.5", "3"),)
    broken = case("hip.flash", launches=(launch(),), verdict=Verdict.INCORRECT)
    assert len(shown(broken, counters=counters)) == 1


def compiled(kernel: str, config: str, arch: str = "gfx942", **fields: Any) -> CodeResult:
    """A compiled kernel of this declaration."""
    key = CaseKey("code_objects", kernel, config, arch)
    amd = code(arch=arch, vgpr_spills=0, sgpr_spills=0, scratch_bytes=16)
    made = CodeResult(key, "node", Verdict.RIGHT, "", code=amd, compiler="clang 22.1.8")
    return replace(made, **fields)


def test_compiled_kernels_of_the_ladder(case: CaseFactory) -> None:
    """A table per architecture without times: kernels named as a backend, or as a kernel that one launched."""
    ladder = Ladder("prefill", (case("hip.flash", launches=(launch("run"),)),), 1.0, "x", None)
    results = (
        compiled("hip.flash", "d64", code=code("any", arch="gfx942", vgpr_spills=0, sgpr_spills=0, scratch_bytes=16)),
        compiled("hip.flash", "d256", code=None, verdict=Verdict.ERROR),
        compiled("triton.prefill", "d64", code=code("run")),
        compiled("triton.rope", "d64"),
        compiled("hip.flash", "d64", "gfx1100", compiler=""),
    )
    first, second = compiled_tables(results, [ladder], lambda _: FULL)
    assert (first.title, second.title) == ("gfx942, compiled by clang 22.1.8, not run", "gfx1100, compiled, not run")
    assert [row[0] for row in first.rows] == ["hip.flash", "- d64", "- d256", "triton.prefill", "- d64"]
    assert first.rows[1][1:] == ("5120", "96", "16 of 16", "full", "24/8", "4/0", "32/32", "0", "16")
    assert first.rows[2][1:] == ("ERROR", *("-" for _ in first.columns[1:]))
    assert compiled_tables(results[3:4], [ladder], lambda _: FULL) == []


def test_the_header_says_where_and_with_what(case: CaseFactory, run: RunFactory) -> None:
    """Device, versions that are there, compilers that backends name, date, commit and command."""
    versions = Fingerprint({"arch": "sm_90"}, {"torch": "2.11.0", "triton": "none", "cuda": "13.0", "python": "3.11"})
    cases = tuple(case(name, config={"compiler": "NVRTC 13.0"}) for name in ("hip.naive", "hip.flash"))
    results = run(*cases, fingerprint=versions, device=DeviceInfo("cuda", "sm_90", "h200", "NVIDIA H200"))
    assert header_lines(results, [Ladder("prefill", cases, 1.0, "x", None)]) == [
        "NVIDIA H200 (sm_90), torch 2.11.0, cuda 13.0, NVRTC 13.0",
        "2026-01-01T00:00:00Z, commit 4f2c1ab, pytest-attnperf 0.1.0: pytest --attnperf suites/",
    ]
    bare = run(fingerprint=None, device=None)
    assert header_lines(bare, [])[0] == "a device that is not known"


def test_a_terminal_of_a_hundred_columns_shows_all(case: CaseFactory) -> None:
    """Long names, many limits and large figures stay within 100 columns, and so does what explains the columns."""
    name = "triton.flash_persistent_with_a_long_name_indeed"
    wide = case(name, median_us=1043000.0, code=(code(arch="gfx942", vgprs=256, agprs=256, lds_dynamic_bytes=160000),))
    text = terminal([held_to("hip.naive", "native.sdpa_flash"), *LEGEND], shown(wide, wide))
    assert max(map(len, text.splitlines())) <= 100
    assert "256+256a" in text
    assert max(map(len, LEGEND)) <= 100
