from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.codeobject.hip_toolchain import Toolchain
from pytest_attnperf.codeobject.tools import Tool
from pytest_attnperf.errors import ToolMissingError
from pytest_attnperf.tools.doctor import compilers
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status


def refuse(*_: object) -> None:
    """A tool that is not there."""
    raise ToolMissingError("no clang here compiles HIP")


def test_clang_and_objdump_are_asked_for_the_gpus_architecture(make_here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU for gfx942; what is missing says what is lost, and what to install."""
    asked: list[str] = []
    toolchain = Toolchain(("/usr/bin/clang++-22",), (), "clang 22.1.8", "")
    monkeypatch.setattr(compilers, "find_toolchain", lambda arch, environ: asked.append(arch) or toolchain)
    monkeypatch.setattr(compilers, "find_objdump", lambda arch: asked.append(arch) or Tool(Path("/x"), "22.1.8"))
    monkeypatch.setattr(compilers.kfd, "list_architectures", lambda system: ["gfx950"])
    (clang,), (objdump,) = compilers.clang_probe(make_here()), compilers.objdump_probe(make_here())
    assert (clang.value, objdump.value) == ("clang 22.1.8, compiles HIP for gfx950", "22.1.8, knows gfx950")
    monkeypatch.setattr(compilers.kfd, "list_architectures", lambda system: [])
    compilers.clang_probe(make_here())
    assert asked == ["gfx950", "gfx950", "gfx942"]
    monkeypatch.setattr(compilers, "find_toolchain", refuse)
    monkeypatch.setattr(compilers, "find_objdump", refuse)
    (clang,), (objdump,) = compilers.clang_probe(make_here()), compilers.objdump_probe(make_here())
    assert (clang.status, objdump.status) == (Status.WARNING, Status.NOTE)
    assert "apt-get install clang" in clang.fix


def gpu_lines(here: Any) -> dict[str, DoctorFinding]:
    """By name."""
    return {finding.name: finding for finding in compilers.gpu_probe(here)}


def put(root: Path, name: str) -> None:
    """An empty file on the machine."""
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).touch()


@pytest.mark.parametrize(
    ("vendor", "runtime", "library", "driver"),
    [
        ("amd", "hipRTC", "opt/rocm/lib/libhiprtc.so.7", "opt/rocm/bin/hipcc"),
        ("nvidia", "NVRTC", "usr/local/cuda/lib64/libnvrtc.so.12", "usr/local/cuda/bin/nvcc"),
    ],
)
def test_compilers_of_a_gpu_are_looked_for_beside_torch_and_in_the_system(
    make_here: Any, monkeypatch: pytest.MonkeyPatch, vendor: str, runtime: str, library: str, driver: str
) -> None:
    """The runtime compiler and the driver are found where the vendor installs them; without the first HIP is slow."""
    monkeypatch.setattr(compilers.importlib.util, "find_spec", lambda name: None)
    here = make_here(vendor)
    program = driver.rpartition("/")[2]
    lines = gpu_lines(here)
    assert lines[runtime].status is Status.WARNING
    assert lines[program].status is (Status.WARNING if vendor == "amd" else Status.OK)
    put(here.system.root, library)
    put(here.system.root, driver)
    lines = gpu_lines(here)
    assert lines[runtime].status is Status.OK
    assert lines[program].value == "found"


def test_no_gpu_needs_none(make_here: Any) -> None:
    """Without a GPU nothing is said of its compilers."""
    assert gpu_lines(make_here()) == {}
