from __future__ import annotations

import io
import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.cli.commands import occupancy as occupancy_command
from pytest_attnperf.cli.commands.occupancy import OccupancyPoint, raise_lines, render_point
from pytest_attnperf.cli.program import build_parser, main
from pytest_attnperf.cli.program import main as cli
from pytest_attnperf.codeobject.occupancy import Resources, occupancy_with
from pytest_attnperf.tools.occupancy.occupancy_text import ASCII, occupancy_json

PAGE = Path(__file__).parents[3] / "docs" / "occupancy.md"
SHOWN = re.compile(r"```text\n\$ attnperf (?P<arguments>.*?)\n(?P<output>.*?)```", re.DOTALL)

NUMBERS = "--vgprs 96 --agprs 0 --sgprs 40 --lds 8192 --threads 256"

OBJECTS = Path(__file__).parents[2] / "data" / "code_objects"

SUITE = """
def test_code_object(code_object, kernel_build):
    code_object.gate(kernel_build)
"""

CONFTEST = """
from pathlib import Path
from pytest_attnperf.kernel_builds import Kernel, KernelBuild, ObjectFile
from pytest_attnperf.testing.fake.backends import FakeBackend

class Prebuilt(Kernel):
    def builds(self, arch):
        file = Path(__file__).parent / f"saxpy.{arch}.co"
        return [KernelBuild(self.name, c, arch, ObjectFile(file, threads=256)) for c in ("d64-a", "d64-b", "d128-a")]

def pytest_attnperf_register_kernels(kernels): kernels.add(Prebuilt("hip.saxpy", ("fake.axpy",)))

def pytest_attnperf_register_backends(registry): registry.add(FakeBackend("fake.axpy"))
"""


def printed(arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints that succeeds and says nothing on standard error."""
    assert main(["occupancy", *shlex.split(arguments)]) == 0
    seen = capsys.readouterr()
    assert seen.err == ""
    return seen.out


def point(arch: str, asked: Resources, name: str = "") -> OccupancyPoint:
    """A kernel as the command makes it from numbers."""
    return OccupancyPoint(name, arch, asked, occupancy_with(arch, asked))


def test_the_answer_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    """The first line is the answer, with the limiter; both tables, what raises it, and two plots follow."""
    lines = printed(f"--arch gfx942 {NUMBERS}", capsys).splitlines()
    assert lines[0] == "gfx942: 5 of 8 waves per SIMD, limited by VGPRs; 5 whole workgroups of 4 waves per CU"
    assert [line for line in lines if "<- binds" in line] == [
        "VGPRs       512 per SIMD lane  96 per lane   5 waves per SIMD           5  <- binds"
    ]
    assert "one more wave per SIMD: 16 VGPRs fewer (at most 80)" in lines
    assert [line for line in lines if line.startswith("waves per SIMD by")] == [
        "waves per SIMD by VGPRs per lane, ● this kernel (96)",
        "waves per SIMD by bytes of LDS, ● this kernel (8,192)",
    ]
    assert sum("●" in line and "│" in line for line in lines) == 2


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` prints nothing but the object that describes the kernel of the options."""
    found = json.loads(printed(f"--arch gfx942 {NUMBERS} --json", capsys))
    assert found == json.loads(json.dumps(occupancy_json("gfx942", Resources(96, 0, 40, 8192, 256, 64))))
    assert found["occupancy"]["waves_per_simd"] == 5
    assert found["resources"]["wgp_mode"] is None


def test_mode_and_wave_are_options(capsys: pytest.CaptureFixture[str]) -> None:
    """`--cu-mode` and `--wave-size` change the block and the wave, and SGPRs need not be given for RDNA."""
    numbers = "--arch gfx1100 --vgprs 128 --lds 0 --threads 256 --json"
    wgp = json.loads(printed(numbers, capsys))
    cu = json.loads(printed(f"{numbers} --cu-mode --wave-size 64", capsys))
    assert (wgp["holds"]["block"], wgp["resources"]["wave_size_lanes"], wgp["resources"]["wgp_mode"]) == (
        "WGP",
        32,
        True,
    )
    assert (cu["holds"]["block"], cu["resources"]["wave_size_lanes"], cu["resources"]["wgp_mode"]) == ("CU", 64, False)
    assert (wgp["occupancy"]["waves_per_simd"], cu["occupancy"]["waves_per_simd"]) == (10, 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "--arch, --vgprs, --lds, --threads missing; a kernel is described by --arch, --vgprs, --lds"),
        ("--arch gfx942 --vgprs 8 --lds 0", "--threads missing;"),
        ("--arch gfx942 --vgprs 8 --lds 0 --threads 64", "--sgprs missing; the waves of a SIMD of gfx942 share 800"),
        (f"--arch gfx942 {NUMBERS} --cu-mode", "--cu-mode is for RDNA; gfx942 has no WGPs"),
        (f"--arch mi300x {NUMBERS}", "'mi300x' are not known; known: gfx906, gfx908, gfx90a, gfx942, gfx950, gfx1030"),
        ("--arch gfx942 --vgprs 300 --sgprs 1 --lds 0 --threads 64", "vgprs 300: a kernel of gfx942 can have 0 to 256"),
        ("--arch gfx942 --vgprs 8 --sgprs 1 --lds 0 --threads 2048", "threads 2048: a kernel of gfx942 can have 1 to"),
        (f"--arch gfx942 {NUMBERS} --wave-size 32", "wave_size 32: a kernel of gfx942 can have 64"),
    ],
)
def test_what_is_off_is_one_line(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing option, one that the architecture has no use for and a value out of range exit 2 with one line."""
    assert main(["occupancy", *shlex.split(arguments)]) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert message in seen.err
    assert seen.err.count("\n") == 1


@pytest.mark.parametrize("arguments", ["--vgprs many", "--wave-size 48", "--explode"])
def test_usage_errors(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is no number, no wave size or no option exits 2 with the usage."""
    with pytest.raises(SystemExit) as stopped:
        main(["occupancy", *shlex.split(arguments)])
    assert stopped.value.code == 2
    assert "usage: attnperf" in capsys.readouterr().err


def test_an_output_without_lines_gets_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where standard output cannot show box characters, the plot is drawn in ASCII."""
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding="ascii") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert main(["occupancy", "--arch", "gfx942", *NUMBERS.split()]) == 0
        output.flush()
        text = raw.getvalue().decode("ascii")
    assert "  5 |----" in text
    assert "o this kernel (96)" in text


def text_of(arch: str, asked: Resources, name: str = "") -> list[str]:
    """Lines of a kernel's report, in ASCII."""
    return render_point(point(arch, asked, name), ASCII).splitlines()


def row(lines: list[str], resource: str, table: int) -> list[str]:
    """Cells of one resource in the first or the second table."""
    return re.split(r"\s{2,}", [line for line in lines if line.startswith(f"{resource}  ")][table])


def test_agprs_are_counted_by_the_architecture() -> None:
    """They share a file on gfx942, have one as large on gfx908, and are not mentioned where there are none."""
    shared = text_of("gfx942", Resources(65, 64, 40, 0, 256))
    assert row(shared, "VGPRs", 0) == ["VGPRs", "65 per lane", "136 per lane with the AGPRs (granule 8)"]
    assert row(shared, "AGPRs", 0) == ["AGPRs", "64 per lane"]
    separate = text_of("gfx908", Resources(65, 64, 40, 0, 256))
    assert row(separate, "VGPRs", 0)[2] == "68 per lane, and as many AGPRs (granule 4)"
    assert not any(line.startswith("AGPRs") for line in text_of("gfx1100", Resources(65, 0, 40, 0, 256)))


def test_what_limits_nothing_says_so() -> None:
    """No LDS, one wave without a barrier, and SGPRs of RDNA: 'no limit'."""
    lines = text_of("gfx1100", Resources(24, 0, 0, 0, 32))
    assert row(lines, "LDS", 1) == ["LDS", "131,072 bytes", "none", "no limit", "16"]
    assert row(lines, "barriers", 0) == ["barriers", "32 workgroups", "none: one wave", "no limit", "16"]
    assert row(lines, "SGPRs", 1) == ["SGPRs", "128 for every wave", "no limit", "16"]


def test_lds_over_the_limit() -> None:
    """What does not fit is said first; the table shows the limit of a workgroup, and the mark stands at 0 waves."""
    lines = text_of("gfx942", Resources(64, 0, 40, 131072, 256))
    assert lines[0] == "gfx942: not one workgroup fits a CU, no launch would succeed: limited by LDS"
    assert row(lines, "LDS", 1)[1:] == ["65,536 bytes per workgroup", "131,072 bytes", "no workgroup", "0", "<- binds"]
    assert "one more wave per SIMD: 65,536 bytes of LDS fewer (at most 65,536)" in lines
    assert lines[-3].startswith("  0 |")
    assert lines[-3].endswith("o")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (Resources(64, 0, 40, 0, 256), ["nothing would raise it: every wave slot is used"]),
        (
            Resources(64, 0, 40, 0, 768),
            ["one more wave per SIMD: no saving is enough; workgroups of 512 or 1,024 threads make 8 waves per SIMD"],
        ),
        (
            Resources(136, 0, 40, 65536, 512),
            [
                "one more wave per SIMD, though still 1 whole workgroup per CU: "
                "32,768 bytes of LDS fewer (at most 32,768)",
                "one more whole workgroup per CU: 8 VGPRs fewer (at most 128) and "
                "32,768 bytes of LDS fewer (at most 32,768)",
            ],
        ),
        (
            Resources(72, 0, 40, 0, 896),
            ["one more wave per SIMD: no saving is enough, and no other size of the workgroup"],
        ),
    ],
)
def test_what_would_raise_it(asked: Resources, expected: list[str]) -> None:
    """A saving, another workgroup, both targets where they differ, or that nothing would."""
    assert occupancy_command.raise_lines(point("gfx942", asked)) == expected


def test_a_name_stands_above_the_answer() -> None:
    """A kernel that has a name is called by it, made safe for a terminal."""
    assert text_of("gfx942", Resources(64, 0, 40, 0, 256), "k\x1b[31m")[0] == "k [31m"


@pytest.mark.parametrize("arch", ["gfx90a", "gfx950", "gfx1151"])
def test_tables_and_plots_are_narrow(arch: str) -> None:
    """Plots are at most 80 columns wide, tables at most 100, also for a kernel that asks for everything."""
    _, used, allowed, _, *plots = "\n".join(text_of(arch, Resources(256, 0, 106, 65537, 1024))).split("\n\n")
    assert max(map(len, f"{used}\n{allowed}".splitlines())) <= 100
    assert len(plots) == 2
    assert max(map(len, "\n".join(plots).splitlines())) <= 80


def differences(page: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Commands of a page whose output is not what they print today."""
    shown = list(SHOWN.finditer(page))
    assert len(shown) == page.count("<!-- output: begin -->") == 1
    return [
        f"{match['arguments']}\n{output}"
        for match in shown
        if not is_shown(match["output"], output := printed(match["arguments"].removeprefix("occupancy "), capsys))
    ]


def is_shown(part: str, whole: str) -> bool:
    """Whether `part` is the whole output, but for what lines of three dots stand for."""
    pieces = re.split(r"^\.\.\.\n", part, flags=re.MULTILINE)
    return re.fullmatch(".*".join(map(re.escape, pieces)), whole, re.DOTALL) is not None


def test_the_page_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Every output in docs/occupancy.md is what its command prints, but for lines left out; this shows all of it."""
    found = differences(PAGE.read_text(encoding="utf-8"), capsys)
    assert not found, "\n".join(found)


def test_a_page_that_is_behind_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    """A figure that the command does not print is found."""
    page = PAGE.read_text(encoding="utf-8").replace("5 of 8 waves", "6 of 8 waves")
    assert [line.partition("\n")[0] for line in differences(page, capsys)] == [f"occupancy --arch gfx942 {NUMBERS}"]


def test_declared_options() -> None:
    """Everything that describes a kernel may be left out of the command line, so that a file may describe it."""
    options = build_parser(["occupancy"]).parse_args(["occupancy"])
    assert (options.arch, options.vgprs, options.sgprs, options.lds, options.threads) == (None,) * 5
    assert (options.agprs, options.cu_mode, options.json) == (0, False, False)


def test_what_a_compiler_reserves_is_said() -> None:
    """Where reserved registers bind, no saving is proposed: the waves without them are named, and the reason."""
    asked = Resources(138, 0, 96, 16384, 256, 64, True, reserved_vgprs=176, reserved_sgprs=112)
    [line] = raise_lines(OccupancyPoint("k", "gfx942", asked, occupancy_with("gfx942", asked)))
    assert line.startswith(
        "3 waves per SIMD without the registers that the compiler reserves beyond the kernel's needs: 176 VGPRs"
    )
    assert "waves_per_eu" in line


def occupancy(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit status and output of `attnperf occupancy ARGUMENTS`."""
    status = cli(["occupancy", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose suite compiles one kernel in three configurations."""
    for arch in ("gfx942", "gfx1100"):
        shutil.copy(OBJECTS / f"saxpy.{arch}.co", tmp_path)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "test_code_objects.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_only_kernel_of_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    """Its name, what it asks for with the launch's own LDS and threads, the answer, and the plots."""
    path = str(OBJECTS / "mfma.gfx942.co")
    status, out, _ = occupancy(capsys, path, "--threads", "64", "--dynamic-lds", "20000")
    assert status == 0
    assert "20,000 bytes" in out
    assert "16 per lane" in out
    assert "gfx942: " in out
    assert "waves per SIMD by VGPRs per lane" in out


def test_several_kernels_of_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    """A line each; one of them alone by name; JSON is a list then, and one object for one kernel."""
    path = str(OBJECTS / "two_kernels.gfx90a.co")
    _, table, _ = occupancy(capsys, path)
    rows = [line.split()[0] for line in table.partition("\n\n")[0].splitlines()[2:]]
    assert len(rows) == 2
    _, alone, _ = occupancy(capsys, path, "--kernel", rows[0])
    assert alone.startswith(rows[0])
    listed = json.loads(occupancy(capsys, path, "--json")[1])
    single: dict[str, Any] = json.loads(occupancy(capsys, path, "--kernel", rows[1], "--json")[1])
    assert [one["name"] for one in listed] == rows
    assert single == listed[1]


def test_kernels_of_a_suite(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A registered kernel, or the beginning of its id, is compiled by the suite for the architecture asked for."""
    _, one, _ = occupancy(capsys, "hip.saxpy-d64-a", "--arch", "gfx1100")
    assert one.startswith("hip.saxpy-d64-a\ngfx1100: 16 of 16 waves per SIMD")
    _, table, _ = occupancy(capsys, "hip.saxpy-d64", "--arch", "gfx942")
    rows = [line.split()[0] for line in table.partition("\n\n")[0].splitlines()[2:]]
    assert rows == ["hip.saxpy-d64-a", "hip.saxpy-d64-b"]
    _, of_backend, _ = occupancy(capsys, "fake.axpy", "--arch", "gfx942")
    assert "hip.saxpy-d128-a" in of_backend
    assert not (project / "baselines").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["saxpy.gfx942.co", "--vgprs", "9"], "--vgprs with saxpy.gfx942.co: a compiled kernel already has this value"),
        (["saxpy.gfx942.co", "--agprs", "9"], "--agprs with saxpy.gfx942.co"),
        (["saxpy.gfx942.co", "--set", "A=1"], "--set with saxpy.gfx942.co: this file is already compiled"),
        (["saxpy.gfx942.co", "--arch", "gfx1100"], "was compiled for gfx942, not for gfx1100"),
        (["saxpy.gfx942.co", "--kernel", "other"], "has no kernel 'other'; it has: saxpy"),
        (["absent.hsaco"], "absent.hsaco does not exist"),
        (["hip.absent"], "compiled nothing for 'hip.absent'"),
        (["hip.saxpy", "--set", "TILE=1"], "no kernel has a setting TILE"),
        (
            ["hip.saxpy", "--tests", "no/such.py"],
            "hip.saxpy is neither a file nor a known kernel, because there is no no/such.py",
        ),
    ],
)
def test_what_cannot_be_told(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """Exit status 2 and a text that names what was given and what exists."""
    status, out, err = occupancy(capsys, *arguments)
    assert (status, out) == (2, "")
    assert said in err


def test_a_cubin_has_no_known_occupancy(capsys: pytest.CaptureFixture[str]) -> None:
    """Of NVIDIA's architectures nothing is known here, and it is said."""
    cubin = str(OBJECTS / "kernels.sm_90.cubin")
    status, _, err = occupancy(capsys, cubin, "--threads", "64")
    assert status == 2
    assert "is no AMD kernel: its occupancy is not known" in err


def test_a_page_shows_the_curves(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """`--html FILE` writes the page besides the text, and says so; the text is the same."""
    arguments = ["occupancy", "--arch", "gfx942", *NUMBERS.split()]
    assert cli(arguments) == 0
    plain = capsys.readouterr().out
    assert cli([*arguments, "--html", str(tmp_path / "o.html")]) == 0
    printed = capsys.readouterr()
    assert printed.out == plain
    assert printed.err == f"written: {tmp_path / 'o.html'}\n"
    page = (tmp_path / "o.html").read_text()
    assert "<h1>Occupancy of gfx942</h1>" in page
    assert "16 VGPRs fewer: 6 waves" in page


def test_a_page_is_opened(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--open` without a file writes into the folder of pages, and gives the page to the browser."""
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    monkeypatch.chdir(tmp_path)
    path = str(OBJECTS / "two_kernels.gfx90a.co")
    assert cli(["occupancy", path, "--threads", "256", "--open"]) == 0
    page = tmp_path / ".attnperf" / "pages" / "occupancy.html"
    assert opened == [page.as_uri()]
    assert '<h2 id="kernel-list-title">2 kernels</h2>' in page.read_text()
    assert "first" in capsys.readouterr().out
