"""`attnperf occupancy FILE|KERNEL`: compiled kernels of a file, and of a project's suite."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.cli.program import main as cli

OBJECTS = Path(__file__).parents[2] / "data" / "code_objects"

SUITE = """
def test_code_object(code_object, kernel_build):
    code_object.gate(kernel_build)
"""

CONFTEST = """
from pathlib import Path
from pytest_attnperf.kernel_builds import KernelBuild, ObjectFile

class Prebuilt:
    name, backends = "hip.saxpy", ()
    def unsupported_reasons(self, arch): return []
    def builds(self, arch):
        file = Path(__file__).parent / f"saxpy.{arch}.co"
        return [KernelBuild(self.name, c, arch, ObjectFile(file, threads=256)) for c in ("d64-a", "d64-b", "d128-a")]

def pytest_attnperf_register_kernels(kernels): kernels.add(Prebuilt())
"""


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
    rows = [line.split()[0] for line in table.splitlines()[2:]]
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
    assert [line.split()[0] for line in table.splitlines()[2:]] == ["hip.saxpy-d64-a", "hip.saxpy-d64-b"]
    assert not (project / "baselines").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["saxpy.gfx942.co", "--vgprs", "9"], "--vgprs with saxpy.gfx942.co: a compiled kernel says that itself"),
        (["saxpy.gfx942.co", "--agprs", "9"], "--agprs with saxpy.gfx942.co"),
        (["saxpy.gfx942.co", "--set", "A=1"], "--set with saxpy.gfx942.co: it is compiled already"),
        (["saxpy.gfx942.co", "--arch", "gfx1100"], "was compiled for gfx942, not for gfx1100"),
        (["saxpy.gfx942.co", "--kernel", "other"], "has no kernel 'other'; it has: saxpy"),
        (["absent.hsaco"], "absent.hsaco does not exist"),
        (["hip.absent"], "compiled nothing for 'hip.absent'"),
        (["hip.saxpy", "--set", "TILE=1"], "no kernel has a setting TILE"),
        (["hip.saxpy", "--suite", "no/such.py"], "hip.saxpy is no file, and there is no no/such.py"),
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
