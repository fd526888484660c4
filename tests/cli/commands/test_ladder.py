from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.cli.commands.ladder import BEGIN, END, occupancy, with_ladder
from pytest_attnperf.cli.program import main
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import CaseKey, DeviceInfo, Fingerprint, Launch, Verdict, WorkloadFigures
from pytest_attnperf.records.code import CodeResult, KernelCode
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult

Run = Callable[..., str]

WORKLOAD = "prefill-b4-s512-h8-d256-f16-causal"
FLASH = KernelCode("flash", "sm_90", 96, 0, 96, 0, None, None, 0, 0, 0, 64, 256, 256, 32, None, False, 64, "a1")
LAUNCH = Launch("flash", grid=(8, 1, 1), block=(256, 1, 1), isa_hash="a1")
AMD = replace(FLASH, arch="gfx942", vgprs=100, vgpr_spills=0, sgpr_spills=0, wave_size=64)
PAGE = f"# Kernels\n\n{BEGIN}\nold\n{END}\n\nend\n"


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
def printed(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `attnperf ladder` with files called by name, and gives what it prints; a failure gives the error instead."""

    def run(*arguments: str, status: int = 0) -> str:
        assert main(["ladder", *(files.get(argument, argument) for argument in arguments)]) == status
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
        ["hip.flash", "20.00", "5.00x", "50.0", "1678", "855"],
        ["hip.flash", "0", "96", "5", "(4)", "of", "16", "registers", "-", "-", "-", "0"],
    ]
    assert max(map(len, text.splitlines())) <= 100


def test_base_against_and_backends_are_options(printed: Run) -> None:
    """Ratios follow `--base` and `--against`, rows follow `--backends`."""
    text = printed("run", "--base", "hip.flash", "--against", "hip.naive", "--backends", "hip.naive, hip.flash")
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
    text = printed("run", "--markdown")
    assert text.startswith("- NVIDIA H200")
    assert f"### {WORKLOAD}" in text
    assert "- loads, stores, matrix: instructions" in text
    for _ in range(2):
        assert printed("run", "--write", "page") == f"written: {files['page']}\n"
        assert Path(files["page"]).read_text() == f"# Kernels\n\n{BEGIN}\n\n{text}\n{END}\n\nend\n"


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("text", f"README.md has 0 times '{BEGIN}'; put one {BEGIN} and one {END} where the ladder is to stand"),
        (BEGIN, f"README.md has 0 times '{END}'; put one"),
        (BEGIN + END + END, f"README.md has 2 times '{END}'; put one"),
        (END + BEGIN, f"README.md has {END} before {BEGIN}; put the markers in order"),
    ],
)
def test_a_page_needs_one_pair_of_markers(page: str, message: str) -> None:
    """Missing, doubled and swapped markers are refused: nothing is written where it was not asked for."""
    with pytest.raises(UsageError) as caught:
        with_ladder(page, "ladder", "README.md")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "--base", "hip.first"), "run.json has no case of the base backend 'hip.first'; choose one by --base"),
        (("run", "--against", "ck"), "unknown backend 'ck'; known: hip.flash, hip.naive, native.sdpa_flash"),
        (("run", "--backends", "ck"), "unknown backend 'ck'; known:"),
        (("run", "--workload", "decode"), f"unknown workload 'decode'; known: {WORKLOAD}"),
        (("code",), "code.json holds no case; a ladder is made of a run of the suites"),
        (("run", "--code", "run"), "run.json holds no compiled kernels; make some by pytest --attnperf"),
        (("run", "--code", "rope"), "rope.json holds none of the kernels of this ladder; it holds: triton.rope"),
        (("run", "--profile", "page"), "page has no column Dispatch_Id, Kernel_Name, Counter_Name, Counter_Value"),
        (
            ("run", "--profile", "strange"),
            "strange counts no launch of this ladder: its kernels are gemm; launched were",
        ),
        (("run", "--write", "strange"), f"strange has 0 times '{BEGIN}'"),
        (("page",), "page is no results file of this version"),
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
    found = occupancy(code)
    assert (None if found is None else found.waves_per_simd) == waves
