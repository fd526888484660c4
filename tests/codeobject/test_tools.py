from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import time
from pathlib import Path

import pytest

from pytest_attnperf.codeobject import tools
from pytest_attnperf.codeobject.tools import cuda_tools, find_objdump, find_objdumps, run
from pytest_attnperf.errors import CodeObjectError, ToolMissingError


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any tool: what a test puts into its own folder is all there is."""
    for name in ("ATTNPERF_LLVM_OBJDUMP", "ATTNPERF_NVDISASM", "ROCM_PATH", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tools, "SYSTEM_ROCM", tmp_path / "no-rocm")
    monkeypatch.setattr(tools, "SYSTEM_CUDA", tmp_path / "no-cuda")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def program(path: Path, body: str) -> Path:
    """A program of that path, in sh."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def fake_objdump(path: Path, version: str, *archs: str) -> Path:
    """An llvm-objdump that says its version, and lists architectures the way LLVM does."""
    lines = "".join(f"echo '  {arch}   - Select the {arch} processor.' >&2; " for arch in archs)
    listed = f'if [ "$3" = --mcpu=help ]; then {lines} exit 1; fi'
    return program(path, f'if [ "$1" = --version ]; then echo "Debian LLVM version {version}"; exit 0; fi\n{listed}')


def test_the_newest_that_knows_the_architecture_is_preferred(tmp_path: Path) -> None:
    """Numbers are compared as numbers: 22 is newer than 9."""
    fake_objdump(tmp_path / "bin/llvm-objdump-9", "9.0.1", "gfx942")
    newest = fake_objdump(tmp_path / "bin/llvm-objdump-22", "22.1.8", "gfx942", "gfx950")
    fake_objdump(tmp_path / "bin/llvm-objdump-23", "23.0.0", "gfx950")
    plain = fake_objdump(tmp_path / "bin/llvm-objdump", "14.0.6", "gfx942")
    assert find_objdump("gfx942").path == newest
    assert [tool.version for tool in find_objdumps("gfx942")] == ["22.1.8", "9.0.1", "14.0.6"]
    assert find_objdumps("gfx942")[-1].path == plain


def test_rocm_comes_before_what_is_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """$ROCM_PATH, then the system's ROCm, then PATH."""
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "rocm-7"))
    monkeypatch.setattr(tools, "SYSTEM_ROCM", tmp_path / "rocm")
    fake_objdump(tmp_path / "rocm/llvm/bin/llvm-objdump", "19.0.0git", "gfx942")
    fake_objdump(tmp_path / "rocm-7/llvm/bin/llvm-objdump", "20.0.0git", "gfx942")
    fake_objdump(tmp_path / "bin/llvm-objdump-22", "22.1.8", "gfx942")
    assert [tool.version for tool in find_objdumps("gfx942")] == ["20.0.0git", "19.0.0git", "22.1.8"]


def test_a_tool_that_is_named_is_the_only_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ATTNPERF_LLVM_OBJDUMP is an order, not a hint."""
    named = fake_objdump(tmp_path / "mine", "21.1.0", "gfx942")
    fake_objdump(tmp_path / "bin/llvm-objdump-22", "22.1.8", "gfx942", "gfx950")
    monkeypatch.setenv("ATTNPERF_LLVM_OBJDUMP", str(named))
    assert [tool.path for tool in find_objdumps("gfx942")] == [named]
    with pytest.raises(ToolMissingError, match=r"mine 21\.1\.0 does not know gfx950"):
        find_objdump("gfx950")


def test_one_file_under_two_names_is_one_tool(tmp_path: Path) -> None:
    """`llvm-objdump` is often a link to a numbered one."""
    numbered = fake_objdump(tmp_path / "bin/llvm-objdump-22", "22.1.8", "gfx942")
    (tmp_path / "bin/llvm-objdump").symlink_to(numbered)
    assert [tool.path for tool in find_objdumps("gfx942")] == [numbered]


def test_an_absent_tool_is_an_error_with_what_was_found_and_what_to_install(tmp_path: Path) -> None:
    """Too old, broken and built without AMD GPUs are each said; so is how to get one."""
    fake_objdump(tmp_path / "bin/llvm-objdump-19", "19.1.7", "gfx942")
    fake_objdump(tmp_path / "bin/llvm-objdump-18", "18.1.0")
    program(tmp_path / "bin/llvm-objdump-17", "echo 'libLLVM.so: not found' >&2; exit 127")
    with pytest.raises(ToolMissingError) as caught:
        find_objdump("gfx950")
    text = str(caught.value)
    assert "disassembles gfx950 (LLVM 20 or newer)" in text
    assert "llvm-objdump-19 19.1.7 does not know gfx950" in text
    assert "llvm-objdump-18 18.1.0 was built without AMD GPUs" in text
    assert "llvm-objdump-17 exited with status 127: libLLVM.so: not found" in text
    assert "apt-get install llvm-22" in text
    assert "ATTNPERF_LLVM_OBJDUMP" in text


def test_without_any_tool_the_error_says_so() -> None:
    """An empty machine gets the same advice; an architecture without a known minimum gets no number."""
    with pytest.raises(ToolMissingError, match=r"disassembles gfx9999: none is installed\. Install one"):
        find_objdump("gfx9999")


def test_a_named_tool_that_does_not_exist_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A typing mistake in the variable is not answered by another tool."""
    monkeypatch.setenv("ATTNPERF_LLVM_OBJDUMP", str(tmp_path / "nowhere"))
    with pytest.raises(ToolMissingError, match="nowhere cannot be started: No such file"):
        find_objdump("gfx942")


def test_cuda_tools_are_found_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """$CUDA_HOME, PATH, the system's CUDA, then the one in Triton's wheel, which is not imported for it."""
    for folder, version in (("home/bin", "12.4.1"), ("bin", "12.8.0"), ("cuda/bin", "13.0.1")):
        program(tmp_path / folder / "nvdisasm", f"echo 'Cuda compilation tools, release 1, V{version}'")
    wheel = tmp_path / "site/triton"
    program(wheel / "backends/nvidia/bin/nvdisasm", "echo V13.1.80")
    spec = importlib.machinery.ModuleSpec("triton", None, origin=str(wheel / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", {"triton": spec}.get)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tools, "SYSTEM_CUDA", tmp_path / "cuda")
    imported = "triton" in sys.modules
    assert [tool.version for tool in cuda_tools("nvdisasm")] == ["12.4.1", "12.8.0", "13.0.1", "13.1.80"]
    assert cuda_tools("nvdisasm")[0].version == "12.4.1"
    assert ("triton" in sys.modules) is imported


def test_an_absent_cuda_tool_is_an_error(tmp_path: Path) -> None:
    """It names the tool, what failed, and the variable."""
    with pytest.raises(ToolMissingError, match=r"no cuobjdump: none is installed.*ATTNPERF_CUOBJDUMP"):
        cuda_tools("cuobjdump")[0]
    program(tmp_path / "bin/nvdisasm", "exit 3")
    with pytest.raises(ToolMissingError, match="nvdisasm exited with status 3: no message"):
        cuda_tools("nvdisasm")[0]


def test_a_failing_tool_is_an_error_with_its_first_line(tmp_path: Path) -> None:
    """A crash names the signal; a failure the status and what the tool said first."""
    crashing = program(tmp_path / "crashing", "kill -ABRT $$")
    with pytest.raises(CodeObjectError, match=r"crashing exited with status -6 \(SIGABRT\): no message"):
        run(crashing, [])
    failing = program(tmp_path / "failing", "echo >&2; echo 'cannot read' >&2; echo more >&2; exit 1")
    with pytest.raises(CodeObjectError, match=r"failing exited with status 1: cannot read$"):
        run(failing, [])


def test_a_hanging_tool_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its children are, too: one that holds the pipe open would keep the caller waiting."""
    monkeypatch.setattr(tools, "TIME_LIMIT_S", 0.3)
    monkeypatch.setenv("PATH", os.defpath)
    hanging = program(tmp_path / "hanging", f"sleep 60 & echo $! > {tmp_path}/child; wait")
    began = time.monotonic()
    with pytest.raises(CodeObjectError, match=r"hanging was stopped after 0\.3 s"):
        run(hanging, [])
    assert time.monotonic() - began < 10
    child = int((tmp_path / "child").read_text())
    while running(child):
        assert time.monotonic() - began < 20
        time.sleep(0.01)


def running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_tool_is_asked_once(tmp_path: Path) -> None:
    """What a tool is does not change while a process lives."""
    counted = tmp_path / "calls"
    tool = fake_objdump(tmp_path / "bin/llvm-objdump-22", "22.1.8", "gfx942", "gfx950")
    tool.write_text(tool.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\necho >> {counted}\n"))
    for arch in ("gfx942", "gfx950", "gfx942"):
        find_objdump(arch)
    assert len(counted.read_text().splitlines()) == 2
