from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.cli.program import main
from pytest_attnperf.cli.report_modes.by_step import (
    BEGIN,
    END,
    LEGEND,
    compiled_tables,
    describe_reference,
    find_occupancy,
    header_lines,
    insert_ladder,
    ladder_tables,
)
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import CaseKey, DeviceInfo, Fingerprint, Launch, Verdict, WorkloadFigures
from pytest_attnperf.records.code import CodeResult, KernelCode, Occupancy
from pytest_attnperf.records.counters import KernelCounter
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.reports.run.ladder_cases import Ladder
from pytest_attnperf.reports.text.time_cells import fix_units
from pytest_attnperf.reports.text.wide_tables import Table, render_terminal_tables
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult
from tests.reports.conftest import make_case, make_run

Run = Callable[..., str]

WORKLOAD = "prefill-b4-s512-h8-d256-f16-causal"
FLASH = KernelCode("flash", "sm_90", 96, 0, 96, 0, None, None, 0, 0, 0, 64, 256, 256, 32, None, False, 64, "a1")
LAUNCH = Launch("flash", grid=(8, 1, 1), block=(256, 1, 1), isa_hash="a1")
AMD = replace(FLASH, arch="gfx942", vgprs=100, vgpr_spills=0, sgpr_spills=0, wave_size=64)
PAGE = f"# Kernels\n\n{BEGIN}\nold\n{END}\n\nend\n"

COUNTS = {"global_load_16B": 20, "global_load_lds_16B": 4, "global_store_4B": 4, "global_atomic": 1, "matrix": 32}
LOOPS = {"global_load_16B": 8, "matrix": 32}
FULL = Occupancy(16, 16.0, 16, 8, 8, {"vgprs": 16}, ())
BOUND = Occupancy(5, 4.0, 16, 2, 8, {"vgprs": 5, "lds": 5}, ("vgprs", "lds"))


def case(backend: str, us: float, workload: str = WORKLOAD) -> CaseResult:
    """A right and timed case on an H200 that launched `flash`."""
    return CaseResult(
        CaseKey("prefill", backend, workload),
        "node",
        Verdict.NO_BASELINE,
        "",
        median_us=us,
        figures=WorkloadFigures(17.1e9, 33554432.0, "f16", "hot"),
        fingerprint=Fingerprint({"arch": "sm_90", "product": "h200"}, {"torch": "2.11.0"}),
        launches=(LAUNCH,),
        code=(FLASH,),
    )


def results(path: Path, *cases: CaseResult, code: tuple[CodeResult, ...] = ()) -> Path:
    """A results file."""
    device = DeviceInfo("cuda", "sm_90", "h200", "NVIDIA H200")
    run = RunResult(
        RESULTS_SCHEMA, "0.1.0", "gate", "2026-01-01", "pytest --attnperf", "c0", device, None, cases, code=code
    )
    json_results.write(path, run)
    return path


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Results of a run, of compiled kernels, a profile and a page to write into, by name."""
    compiled = CodeResult(CaseKey("code_objects", "hip.flash", "d256", "gfx942"), "node", Verdict.RIGHT, "", code=AMD)
    other = replace(
        compiled, key=CaseKey("code_objects", "triton.rope", "d64", "gfx942"), code=replace(AMD, name="rope")
    )
    times = (case("native.sdpa_flash", 10.0), case("hip.naive", 100.0), case("hip.flash", 20.0))
    columns = "Dispatch_Id,Kernel_Name,Counter_Name,Counter_Value"
    texts = {
        "page": PAGE,
        "profile": f"{columns}\n1,flash.kd,SQ_WAVES,12\n",
        "strange": f"{columns}\n1,gemm,SQ_WAVES,1\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return {
        "run": str(results(tmp_path / "run.json", *times)),
        "code": str(results(tmp_path / "code.json", code=(compiled, other))),
        "rope": str(results(tmp_path / "rope.json", code=(other,))),
        **{name: str(tmp_path / name) for name in texts},
    }


@pytest.fixture
def printed(files: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `attnperf report --by step` with files called by name, and gives what it prints, or the error."""

    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: str, status: int = 0) -> str:
        assert main(["report", "--by", "step", *(files.get(argument, argument) for argument in arguments)]) == status
        seen = capsys.readouterr()
        assert (seen.err if status == 0 else seen.out) == ""
        return seen.err if status else seen.out

    return run


def rows(text: str, name: str) -> list[list[str]]:
    """Cells of every line that begins with this name."""
    return [line.split() for line in text.splitlines() if line.split()[:1] == [name]]


def test_the_ladder_of_a_run(printed: Run) -> None:
    """Header, times relative to both backends, and the code of what ran with its occupancy."""
    text = printed("run")
    assert text.startswith("NVIDIA H200 (sm_90), torch 2.11.0\n2026-01-01, commit c0, pytest-attnperf 0.1.0: pytest")
    assert rows(text, "hip.flash") == [
        ["hip.flash", "20.00", "5.00x", "50.0", "1678", "-", "855"],
        ["hip.flash", "0", "96", "5", "(4)", "of", "16", "registers", "-", "-", "-", "0"],
    ]
    assert max(map(len, text.splitlines())) <= 100


def test_over_relative_to_and_backends_are_options(printed: Run) -> None:
    """Ratios follow `--over` and `--relative-to`, rows follow `--backends`."""
    text = printed("run", "--over", "hip.flash", "--relative-to", "hip.naive", "--backends", "hip.naive, hip.flash")
    assert rows(text, "hip.naive")[0][:4] == ["hip.naive", "100.0", "0.20x", "100"]
    assert rows(text, "native.sdpa_flash") == []
    assert "% of naive" in text
    assert printed("run", "--workload", WORKLOAD) == printed("run")


def test_a_default_that_is_absent_is_no_error(tmp_path: Path, printed: Run) -> None:
    """Without the backend that speeds are relative to by default, the column holds no figure."""
    text = printed(str(results(tmp_path / "two.json", case("hip.naive", 100.0), case("hip.flash", 20.0))))
    assert rows(text, "hip.flash")[0][3] == "-"


def test_compiled_kernels_and_counters_follow(printed: Run) -> None:
    """`--code` adds the ladder's kernels of another architecture, `--profile` what was counted of those that ran."""
    text = printed("run", "--code", "code", "--profile", "profile")
    assert "gfx942, compiled, not run" in text
    assert [line.split() for line in text.splitlines() if line.startswith("hip.flash: flash")] == [
        ["hip.flash:", "flash", "SQ_WAVES", "12", "1"]
    ]
    assert "rope" not in text
    compiled = next(line for line in text.splitlines() if line.startswith("- d256"))
    assert compiled.split()[2:7] == ["0", "100", "4", "of", "8"]


def test_markdown_and_writing_are_the_same_text(files: dict[str, str], printed: Run) -> None:
    """`--write` puts what `--markdown` prints between the markers, and nothing else changes; twice is the same."""
    text = printed("run", "--markdown", "-")
    assert text.startswith("- NVIDIA H200")
    assert f"### {WORKLOAD}" in text
    assert "- loads, stores, matrix: instructions" in text
    for _ in range(2):
        assert printed("run", "--write", "page") == f"written: {files['page']}\n"
        assert Path(files["page"]).read_text() == f"# Kernels\n\n{BEGIN}\n\n{text}\n{END}\n\nend\n"


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("text", f"README.md has 0 times '{BEGIN}'; put one {BEGIN} and one {END} where the ladder belongs"),
        (BEGIN, f"README.md has 0 times '{END}'; put one"),
        (BEGIN + END + END, f"README.md has 2 times '{END}'; put one"),
        (END + BEGIN, f"README.md has {END} before {BEGIN}; put the markers in order"),
    ],
)
def test_a_page_needs_one_pair_of_markers(page: str, message: str) -> None:
    """Missing, doubled and swapped markers are refused: nothing is written where it was not asked for."""
    with pytest.raises(UsageError) as caught:
        insert_ladder(page, "ladder", "README.md")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "--over", "hip.first"), "run.json has no case of the base backend 'hip.first'; choose one by --over"),
        (("run", "--relative-to", "ck"), "unknown backend 'ck'; known: hip.flash, hip.naive, native.sdpa_flash"),
        (("run", "--backends", "ck"), "unknown backend 'ck'; known:"),
        (("run", "--workload", "decode"), f"unknown workload 'decode'; known: {WORKLOAD}"),
        (("code",), "code.json holds no case; a ladder needs a run of the suites"),
        (("run", "--code", "run"), "run.json holds no compiled kernels; make some by pytest --attnperf"),
        (("run", "--code", "rope"), "rope.json holds none of the kernels of this ladder; it holds: triton.rope"),
        (("run", "--profile", "page"), "page has no column Dispatch_Id, Kernel_Name, Counter_Name, Counter_Value"),
        (
            ("run", "--profile", "strange"),
            "strange has no counters of this ladder's kernels: it has gemm; the ladder launched",
        ),
        (("run", "--write", "strange"), f"strange has 0 times '{BEGIN}'"),
        (("page",), "page is not a results file of this version"),
        (("absent.json",), "absent.json"),
    ],
)
def test_what_is_off_is_one_line(printed: Run, arguments: tuple[str, ...], message: str) -> None:
    """Files and names that do not fit exit 2 with one line that says what exists."""
    text = printed(*arguments, status=2)
    assert text.startswith("attnperf: ")
    assert message in text
    assert text.count("\n") == 1


@pytest.mark.parametrize(
    ("code", "waves"), [(FLASH, 5), (AMD, 4), (replace(AMD, vgprs=300), None), (replace(FLASH, arch="sm_70"), None)]
)
def test_occupancy_is_of_both_vendors(code: KernelCode, waves: Any) -> None:
    """NVIDIA's and AMD's limits; None for an architecture that is not known and a kernel that cannot be."""
    found = find_occupancy(code)
    assert (None if found is None else found.waves_per_simd) == waves


def code(name: str = "flash", **changed: Any) -> KernelCode:
    """A kernel of an NVIDIA GPU whose ISA hash is its name."""
    own = KernelCode(
        name, "sm_90", 96, 0, 96, 0, None, None, 0, 4096, 1024, 64, 256, 256, 32, None, False, 64, name, COUNTS, LOOPS
    )
    return replace(own, **changed)


def launch(name: str = "flash") -> Launch:
    """A launch of the kernel of this name."""
    return Launch(name, grid=(8, 1, 1), block=(256, 1, 1), isa_hash=name)


def as_text(table: Table) -> Table:
    """A table whose times are texts, as they are printed."""
    headers, rows = fix_units(["", *(column.header for column in table.columns)], table.rows)
    columns = tuple(replace(column, header=name) for column, name in zip(table.columns, headers[1:], strict=True))
    return replace(table, columns=columns, rows=tuple(map(tuple, rows)))


def shown(
    *cases: CaseResult, occupancy: Occupancy | None = BOUND, counters: tuple[KernelCounter, ...] = (), **of: Any
) -> list[Table]:
    """The tables of one ladder."""
    ladder = Ladder("prefill", cases, of.get("base_us", 100.0), "native.sdpa_flash", of.get("against_us", 10.0))
    return [as_text(table) for table in ladder_tables(ladder, lambda _: occupancy, counters)]


def cells(table: Table) -> list[dict[str, str]]:
    """Rows by header."""
    headers = [table.corner, *(column.header for column in table.columns)]
    return [dict(zip(headers, row, strict=True)) for row in table.rows]


def test_a_row_of_a_backend() -> None:
    """Time, both ratios and both rates, and what is known of the one kernel that it launched."""
    (table,) = shown(make_case("hip.flash", median_us=20.0, code=(code(),), launches=(launch(),)))
    assert cells(table) == [
        {
            "backend": "hip.flash",
            "time us": "20.00",
            "speedup": "5.00x",
            "% of sdpa_flash": "50.0",
            "GB/s": "1678",
            "traffic GB/s": "-",
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


def test_traffic_stands_beside_compulsory_bytes() -> None:
    """A backend's own count of bytes is a rate of its own; what is no number of bytes is not known."""
    for text, rate in (("60000000", "3000"), ("-1", "-"), ("many", "-"), ("9" * 5000, "-")):
        (table,) = shown(make_case("hip.flash", median_us=20.0, config={"traffic_bytes": text}))
        (row,) = cells(table)
        assert (row["GB/s"], row["traffic GB/s"]) == ("1678", rate)


def test_what_is_not_known_is_no_zero() -> None:
    """A library's kernel, a workload without figures, and a base or other backend without a time: '-'."""
    bare = make_case("ck", median_us=20.0, figures=None, launches=(launch(),))
    (table,) = shown(bare, base_us=None, against_us=None)
    assert table.rows == (("ck", "20.00", *("-" for _ in table.columns[1:])),)
    unread = code(instructions={}, in_loops={}, undecoded="no disassembler", scratch_bytes=64)
    (table,) = shown(make_case("ck", code=(unread,)), occupancy=None)
    assert table.rows[0][7:] == ("5120", "96", "-", "-", "-", "-", "-", "64 B")
    (table,) = shown(make_case("ck", code=(code(undecoded="loops: indirect branches"),)), occupancy=FULL)
    assert table.rows[0][9:13] == ("16 of 16", "full", "24/-", "4/-")


@pytest.mark.parametrize("verdict", [Verdict.INCORRECT, Verdict.UNSUPPORTED, Verdict.ERROR, Verdict.SUSPICIOUS])
def test_a_case_without_a_right_time_shows_its_word(verdict: Verdict) -> None:
    """No figure of it is printed, and a note says why, once for all backends of which it is said."""
    broken = {"verdict": verdict, "summary": "because", "code": (code(),)}
    (table,) = shown(make_case("hip.flash", **broken), make_case("ck", **broken))
    assert [row[:2] for row in table.rows] == [("hip.flash", verdict.value), ("ck", verdict.value)]
    assert {cell for row in table.rows for cell in row[2:]} == {"-"}
    assert table.notes == (f"hip.flash, ck: {verdict.value}: because",)


def test_a_case_that_was_not_timed_says_so() -> None:
    """RIGHT without a time stands beside timed cases; an INCOMPARABLE time is shown, and why it is so called."""
    right = make_case("hip.flash", verdict=Verdict.RIGHT, median_us=None, summary="right; not timed")
    other = make_case("ck", verdict=Verdict.INCOMPARABLE, summary="no baseline of this product")
    (table,) = shown(right, other)
    assert [row[1] for row in table.rows] == ["RIGHT, not timed", "26.10"]
    assert table.notes == ("hip.flash: RIGHT: right; not timed", "ck: INCOMPARABLE: no baseline of this product")


def test_several_kernels_have_rows_of_their_own() -> None:
    """The time belongs to the call; registers belong to each kernel, and those of unknown code are counted."""
    launches = (launch("split"), launch("reduce"), replace(launch("cast"), isa_hash=""))
    split = make_case("hip.split", code=(code("split"), code("reduce", vgprs=32)), launches=launches)
    (table,) = shown(split)
    assert [(row[0], row[1], row[8]) for row in table.rows] == [
        ("hip.split", "26.10", ""),
        ("hip.split: split", "", "96"),
        ("hip.split: reduce", "", "32"),
        ("hip.split: 1 more of unknown code", "", "-"),
    ]


def test_amd_registers_and_spills() -> None:
    """AGPRs stand beside VGPRs, and spills are counted by kind."""
    spilling = code(arch="gfx942", vgprs=128, agprs=64, vgpr_spills=4, sgpr_spills=1)
    (table,) = shown(make_case("hip.flash", code=(spilling,)))
    assert (table.rows[0][8], table.rows[0][-1]) == ("128+64a", "4 VGPRs, 1 SGPR")
    (table,) = shown(make_case("hip.flash", code=(replace(spilling, vgpr_spills=0, sgpr_spills=0),)))
    assert table.rows[0][-1] == "0"


def test_counters_have_a_table_of_their_own() -> None:
    """Exactly those that were found of the launched kernels; of a case without a time none."""
    counters = (
        KernelCounter("flash", 2048, "SQ_INSTS_VMEM_RD", 1234567.5, 3),
        KernelCounter("flash", 64, "SQ_WAVES", 1.0, 3),
    )
    _, found = shown(make_case("hip.flash", launches=(launch(),)), counters=counters)
    assert found.rows == (("hip.flash: flash", "SQ_INSTS_VMEM_RD", "1,234,567.5", "3"),)
    broken = make_case("hip.flash", launches=(launch(),), verdict=Verdict.INCORRECT)
    assert len(shown(broken, counters=counters)) == 1


def compiled(kernel: str, config: str, arch: str = "gfx942", **fields: Any) -> CodeResult:
    """A compiled kernel of this declaration."""
    key = CaseKey("code_objects", kernel, config, arch)
    amd = code(arch=arch, vgpr_spills=0, sgpr_spills=0, scratch_bytes=16)
    made = CodeResult(key, "node", Verdict.RIGHT, "", code=amd, compiler="clang 22.1.8")
    return replace(made, **fields)


def test_compiled_kernels_of_the_ladder() -> None:
    """A table per architecture without times: kernels named as a backend, or as a kernel that one launched."""
    ladder = Ladder("prefill", (make_case("hip.flash", launches=(launch("run"),)),), 1.0, "x", None)
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


def test_the_header_says_where_and_with_what() -> None:
    """Device, versions that are there, compilers that backends name, date, commit and command."""
    versions = Fingerprint({"arch": "sm_90"}, {"torch": "2.11.0", "triton": "none", "cuda": "13.0", "python": "3.11"})
    cases = tuple(make_case(name, config={"compiler": "NVRTC 13.0"}) for name in ("hip.naive", "hip.flash"))
    results = make_run(*cases, fingerprint=versions, device=DeviceInfo("cuda", "sm_90", "h200", "NVIDIA H200"))
    assert header_lines(results, [Ladder("prefill", cases, 1.0, "x", None)]) == [
        "NVIDIA H200 (sm_90), torch 2.11.0, cuda 13.0, NVRTC 13.0",
        "2026-01-01T00:00:00Z, commit 4f2c1ab, pytest-attnperf 0.1.0: pytest --attnperf suites/",
    ]
    bare = make_run(fingerprint=None, device=None)
    assert header_lines(bare, [])[0] == "a device that is not known"


def test_a_terminal_of_a_hundred_columns_shows_all() -> None:
    """Long names, many limits and large figures stay within 100 columns, and so does what explains the columns."""
    name = "triton.flash_persistent_with_a_long_name_indeed"
    wide = make_case(
        name, median_us=1043000.0, code=(code(arch="gfx942", vgprs=256, agprs=256, lds_dynamic_bytes=160000),)
    )
    text = render_terminal_tables([describe_reference("hip.naive", "native.sdpa_flash"), *LEGEND], shown(wide, wide))
    assert max(map(len, text.splitlines())) <= 100
    assert "256+256a" in text
    assert max(map(len, LEGEND)) <= 100
