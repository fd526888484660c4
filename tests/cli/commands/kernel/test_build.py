from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.backends import Registry
from pytest_attnperf.cli.commands.kernel.build import OUT, build_all
from pytest_attnperf.cli.program import main
from pytest_attnperf.codeobject.hip_toolchain import CLANG, hip_reasons
from pytest_attnperf.codeobject.object_manifest import read_manifest
from pytest_attnperf.codeobject.objects import read_object
from pytest_attnperf.errors import CodeObjectError, ToolMissingError, UnknownNameError, UsageError
from pytest_attnperf.kernel_builds import HipSource, Kernel, KernelBuild, KernelRegistry, ObjectFile
from pytest_attnperf.plugin.own_pytest import Registered
from pytest_attnperf.workloads.families import FAMILIES

REASONS = [reason for arch in ("gfx942", "gfx1100") for reason in hip_reasons(arch)]
needs_clang = pytest.mark.skipif(bool(REASONS), reason="; ".join(REASONS))

HEADER = "#define FACTOR 2.0f\n"
SOURCE = """#include "factor.h"
extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(LANES, LANES)))
void scale(float* out) { out[__builtin_amdgcn_workitem_id_x()] = FACTOR; }
"""


@dataclass(frozen=True)
class Scale(Kernel):
    """A HIP kernel in two sizes."""

    path: Path

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """One of 64 lanes, one of 128."""
        return [
            KernelBuild(
                self.name,
                f"l{lanes}",
                arch,
                HipSource(self.path, "scale", {"LANES": str(lanes)}, threads=lanes, dynamic_lds_bytes=lanes),
            )
            for lanes in (64, 128)
        ]

    def unsupported_reasons(self, arch: str) -> list[str]:
        """Not written for RDNA4."""
        return ["has no RDNA4 form"] if arch == "gfx1201" else []


class Ready(Kernel):
    """A kernel without a HIP source."""

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """One object."""
        return [KernelBuild(self.name, "one", arch, ObjectFile(Path("ready.co")))]


@pytest.fixture
def registered(tmp_path: Path) -> Registered:
    """A project with both kernels."""
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "factor.h").write_text(HEADER)
    (tmp_path / "scale.hip").write_text(SOURCE)
    kernels = KernelRegistry()
    kernels.add(Scale("hip.scale", ("hip.scale",), tmp_path / "scale.hip"), Ready("other.ready", ()))
    config: Any = SimpleNamespace(rootpath=tmp_path)
    return Registered(config, Registry(), FAMILIES, kernels)


def options(tmp_path: Path, arch: str = "gfx942", kernel: list[str] | None = None) -> argparse.Namespace:
    """As parsed."""
    return argparse.Namespace(arch=arch, kernel=kernel, out=tmp_path / "out")


@needs_clang
def test_every_hip_kernel_is_written(
    registered: Registered, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each architecture gets a folder with its objects, and a manifest of what they were compiled from."""
    assert build_all(registered, options(tmp_path, "gfx942,gfx1100")) == 0
    for arch in ("gfx942", "gfx1100"):
        folder = tmp_path / "out" / arch
        small, large = read_manifest(folder, arch)
        data = (folder / small.file).read_bytes()
        assert read_object(data, small.file).arch == arch
        assert hashlib.sha256(data).hexdigest() == small.sha256
        assert (small.file, large.file) == ("hip.scale-l64.co", "hip.scale-l128.co")
        assert (small.function, small.source, small.defines) == ("scale", "scale.hip", {"LANES": "64"})
        assert (small.threads, small.dynamic_lds_bytes) == (64, 64)
        assert small.sources == {
            "factor.h": hashlib.sha256(HEADER.encode()).hexdigest(),
            "scale.hip": hashlib.sha256(SOURCE.encode()).hexdigest(),
        }
    assert capsys.readouterr().out.splitlines()[-1] == f"4 objects in {tmp_path / 'out'}, 0 failed"


@needs_clang
def test_what_does_not_compile_fails_and_is_left_out(
    registered: Registered, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The compiler's message is printed, the exit status is 1, and an older object is no longer in the manifest."""
    assert build_all(registered, options(tmp_path)) == 0
    (tmp_path / "scale.hip").write_text(SOURCE + "#if LANES == 128\nnope\n#endif\n")
    assert build_all(registered, options(tmp_path, kernel=["hip.scale"])) == 1
    (left,) = read_manifest(tmp_path / "out" / "gfx942", "gfx942")
    assert left.config == "l64"
    seen = capsys.readouterr()
    assert "hip.scale, configuration 'l128', for gfx942: scale.hip:5:1: error: " in seen.err
    assert seen.out.splitlines()[-1].startswith("1 objects in ")


@needs_clang
def test_one_kernel_leaves_the_others(registered: Registered, tmp_path: Path) -> None:
    """Built by name, a kernel's entries are added to those of the others; all of them replace what was there."""
    registered.kernels.add(Scale("hip.second", ("hip.scale",), tmp_path / "scale.hip"))
    build_all(registered, options(tmp_path, kernel=["hip.scale"]))
    build_all(registered, options(tmp_path, kernel=["hip.second"]))
    folder = tmp_path / "out" / "gfx942"
    assert [one.kernel for one in read_manifest(folder, "gfx942")] == ["hip.scale"] * 2 + ["hip.second"] * 2
    (folder / "manifest.json").write_text("{")
    with pytest.raises(CodeObjectError, match="is no JSON"):
        build_all(registered, options(tmp_path, kernel=["hip.second"]))
    build_all(registered, options(tmp_path))
    assert len(read_manifest(folder, "gfx942")) == 4


@pytest.mark.parametrize(
    ("arch", "kernel", "error", "message"),
    [
        ("gfx942", ["hip.no"], UnknownNameError, "unknown kernel 'hip.no'; known: hip.scale, other.ready"),
        ("gfx942", ["other.ready"], UsageError, "other.ready has no HIP source .* gfx942; kernels with one: hip.scale"),
        ("gfx1201", ["hip.scale"], UsageError, r"for gfx1201 \(hip.scale: has no RDNA4 form\); kernels with"),
        (",", None, UsageError, "--arch=',' names no architecture; give one such as gfx942"),
        ("sm_90", None, ToolMissingError, "HIP sources are compiled for AMD architectures.* not 'sm_90'"),
    ],
)
def test_nothing_to_build(
    registered: Registered, tmp_path: Path, arch: str, kernel: list[str] | None, error: type[Exception], message: str
) -> None:
    """Unknown names, kernels without a HIP source, and architectures that nothing is built for say what there is."""
    with pytest.raises(error, match=message):
        build_all(registered, options(tmp_path, arch, kernel))
    assert not (tmp_path / "out").exists()


def test_without_a_compiler(registered: Registered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without clang is told what to install, and nothing is written."""
    monkeypatch.setenv(CLANG, str(tmp_path / "no-clang"))
    with pytest.raises(ToolMissingError, match="no clang here compiles HIP for gfx942"):
        build_all(registered, options(tmp_path))
    assert not (tmp_path / "out").exists()


def test_a_suite_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that does not exist exits 2 with one line."""
    assert main(["kernel", "build", "--tests", "no/such"]) == 2
    assert capsys.readouterr().err.startswith("attnperf: no/such does not exist; run this in the project's folder")


CONFTEST = """
from registered_here import KERNEL

def pytest_attnperf_register_kernels(kernels):
    kernels.add(KERNEL)
"""


@needs_clang
def test_typed_in_a_project(registered: Registered, tmp_path: Path) -> None:
    """The command finds what the conftest of the current folder registers, imported as its ini file says."""
    module = Path(__file__).read_text().partition("class Ready")[0].replace("@needs_clang", "")
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "registered_here.py").write_text(
        f"{module}\nKERNEL = Scale('hip.scale', (), Path({str(tmp_path / 'scale.hip')!r}))\n"
    )
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["library"]\n')
    (tmp_path / "conftest.py").write_text(CONFTEST)
    command = [sys.executable, "-m", "pytest_attnperf.cli", "kernel", "build", "--arch", "gfx942"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f"2 objects in {OUT}, 0 failed\n")
    assert (tmp_path / OUT / "gfx942" / "hip.scale-l64.co").is_file()
