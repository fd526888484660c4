from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernels.hip.builds import make_source
from kernels.hip.compiler import load
from kernels.hip.faces import arch_of
from kernels.hip.sources import FOLDER, HipKernel
from kernels.triton.triton_backend import arch_of as triton_arch_of
from kernels.triton.triton_backend import is_interpreted
from pytest_attnperf.codeobject.building import build_object
from pytest_attnperf.codeobject.hip_toolchain import hip_reasons
from pytest_attnperf.environment.device import interpreted_gpu
from pytest_attnperf.errors import UsageError
from pytest_attnperf.isa.program import ARCHS
from pytest_attnperf.kernel_builds import ALL_ARCHS, KernelBuild
from pytest_attnperf.measure.executing import (
    Executor,
    current_executor,
    executing,
    executing_arch,
    start_executing,
)

ARCH = "gfx942"
CPU = torch.device("cpu")

needs_clang = pytest.mark.skipif(bool(hip_reasons(ARCH)), reason="; ".join(hip_reasons(ARCH)))

SHIFT = f"""
#include "{FOLDER / "gpu.h"}"

KERNEL(64) shift(const float* from, float* to, int count) {{
    if (thread_index() < count) to[thread_index()] = from[thread_index()] + ADDED;
}}
"""


@pytest.fixture(autouse=True)
def not_interpreting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton would compile in this process."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.fixture
def shift(tmp_path: Path) -> Callable[[int], HipKernel]:
    """Makes a kernel that adds a number."""
    (tmp_path / "shift.hip").write_text(SHIFT)
    return lambda added: HipKernel(str(tmp_path / "shift.hip"), "shift", 64, {"ADDED": str(added)})


def test_a_process_executes_one_architecture_at_a_time(tmp_path: Path) -> None:
    """Backends are told the architecture of a CPU tensor, and that nothing is interpreted; afterwards all is as it
    was."""
    before = (arch_of(CPU), triton_arch_of(CPU), is_interpreted(torch.zeros(1)))
    with executing(Executor(ARCH, tmp_path)) as executor:
        assert (executing_arch(), current_executor()) == (ARCH, executor)
        assert (arch_of(CPU), triton_arch_of(CPU), is_interpreted(torch.zeros(1))) == (ARCH, ARCH, False)
        with pytest.raises(UsageError, match="executes gfx942 already"):
            start_executing(Executor("gfx950", tmp_path))
    assert executing_arch() == ""
    assert (arch_of(CPU), triton_arch_of(CPU), is_interpreted(torch.zeros(1))) == before
    with pytest.raises(UsageError, match="executes no machine code"):
        current_executor()


def test_what_cannot_be_executed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another architecture, with those that there are, and a process in which Triton interprets."""
    with pytest.raises(UsageError, match="sm_90 cannot be executed; gfx90a, gfx942"):
        start_executing(Executor("sm_90", tmp_path))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(UsageError, match=r"TRITON_INTERPRET=1 makes Triton interpret .* unset it"):
        start_executing(Executor(ARCH, tmp_path))
    assert executing_arch() == ""


def test_the_architectures_are_those_of_the_interpreter() -> None:
    """Both lists name the same."""
    assert set(ARCHS) == set(ALL_ARCHS)


def test_an_interpreted_gpu_has_its_tensors_on_the_cpu() -> None:
    """To backends it is the AMD GPU that it stands for."""
    device = interpreted_gpu(ARCH)
    assert (device.kind, device.arch, device.torch_device, device.interpreted) == ("rocm", ARCH, "cpu", True)


@needs_clang
def test_views_of_one_memory_share_a_buffer(shift: Callable[[int], HipKernel], tmp_path: Path) -> None:
    """A kernel that reads one half of a tensor and writes the other writes into that tensor, and nothing beside it."""
    memory = torch.arange(40, dtype=torch.float32)
    with executing(Executor(ARCH, tmp_path)) as executor:
        load(shift(100), CPU)((1, 1, 1), memory[:12], memory[16:28], 12)
    expected = torch.arange(40, dtype=torch.float32)
    expected[16:28] = torch.arange(12) + 100
    assert torch.equal(memory, expected)
    (launch,) = executor.launches
    assert (launch.kernel, launch.grid, launch.block, launch.given) == ("shift", (1, 1, 1), (64, 1, 1), False)
    assert launch.execution.lane_instructions > 0


@needs_clang
def test_the_given_object_is_the_one_that_runs(shift: Callable[[int], HipKernel], tmp_path: Path) -> None:
    """A launch of its source runs it, whatever it does; a launch with other macros is compiled."""
    compiled = build_object(KernelBuild("hip.shift", "2", ARCH, make_source(shift(2))), tmp_path)
    stands_for_one = KernelBuild("hip.shift", "1", ARCH, make_source(shift(1)))
    with executing(Executor(ARCH, tmp_path, (stands_for_one, compiled))) as executor:
        for added, got in ((1, 2), (3, 3)):
            out = torch.empty(8)
            load(shift(added), CPU)((1, 1, 1), torch.zeros(8), out, 8)
            assert out.tolist() == [got] * 8
    assert [one.given for one in executor.launches] == [True, False]


@needs_clang
def test_arguments_are_checked_as_on_a_gpu(shift: Callable[[int], HipKernel], tmp_path: Path) -> None:
    """A strided tensor and a number that no int holds are refused before anything runs."""
    with executing(Executor(ARCH, tmp_path)) as executor:
        kernel = load(shift(1), CPU)
        with pytest.raises(UsageError, match=r"from .argument 1. must be contiguous"):
            kernel((1, 1, 1), torch.zeros(8, 2)[:, 0], torch.zeros(8), 8)
        with pytest.raises(UsageError, match="which no 32-bit integer holds"):
            kernel((1, 1, 1), torch.zeros(8), torch.zeros(8), 2**31)
    assert executor.launches == []


@needs_clang
def test_an_empty_grid_runs_nothing(shift: Callable[[int], HipKernel], tmp_path: Path) -> None:
    """As a driver does."""
    executor = Executor(ARCH, tmp_path)
    executor.launch_source(make_source(shift(1)), "shift", (0, 1, 1), [torch.zeros(8), torch.zeros(8), 8])
    assert executor.launches == []
