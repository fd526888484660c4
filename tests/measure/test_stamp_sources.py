from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pytest_attnperf.measure.stamp_sources import AMD_SLOTS, HIP, KERNEL, NVIDIA_SLOTS, PTX

CLANGS = ("clang-22", "clang-21", "clang-20", "clang")
CLOCKS = {
    "gfx90a": ("s_memtime", "s_memrealtime"),
    "gfx942": ("s_memtime", "s_memrealtime"),
    "gfx950": ("s_memtime", "s_memrealtime"),
    "gfx1100": ("HW_REG_SHADER_CYCLES, 0, 20", "MSG_RTN_GET_REALTIME"),
    "gfx1201": ("HW_REG_SHADER_CYCLES_HI", "MSG_RTN_GET_REALTIME"),
}
"""What must stand in the assembly: the cycle counter and the constant clock of the architecture."""


def clang_for_amd() -> str:
    """A clang on the path that knows gfx950 (clang 20 and later); '' where there is none."""
    for name in CLANGS:
        path = shutil.which(name)
        if path is None:
            continue
        said = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
        found = re.search(r"clang version (\d+)", said)
        if found and int(found[1]) >= 20:
            return path
    return ""


@pytest.mark.parametrize("arch", sorted(CLOCKS))
def test_the_hip_source_compiles(arch: str) -> None:
    """Without a header, the source becomes code that reads both clocks and stores them at once, without scratch."""
    clang = clang_for_amd()
    if not clang:
        pytest.skip("needs clang 20 or later on the path to compile for AMD")
    flags = ["-nogpuinc", "-nogpulib", "--offload-device-only", "--no-gpu-bundle-output", "-O3", "-Wall", "-Werror"]
    done = subprocess.run(
        [clang, "-x", "hip", f"--offload-arch={arch}", *flags, "-S", "-o", "-", "-"],
        input=HIP,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert f"{KERNEL}:" in done.stdout
    for clock in CLOCKS[arch]:
        assert clock in done.stdout
    assert len(re.findall(r"global_store_(?:dwordx4|b128)", done.stdout)) == 1
    assert ".private_segment_fixed_size: 0" in done.stdout


def ptx_assemblers() -> list[Path]:
    """The assemblers that come with triton."""
    triton = pytest.importorskip("triton")
    return sorted((Path(triton.__file__).parent / "backends/nvidia/bin").glob("ptxas*"))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_the_ptx_assembles(arch: str, tmp_path: Path) -> None:
    """Every assembler at hand that knows the architecture takes the PTX, without spills."""
    source = tmp_path / "stamp.ptx"
    source.write_text(PTX)
    taken = 0
    for ptxas in ptx_assemblers():
        command = [str(ptxas), f"-arch={arch}", "-v", str(source), "-o", str(tmp_path / "stamp.cubin")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        said = done.stdout + done.stderr
        if "is not defined for option 'gpu-name'" in said:
            continue
        assert done.returncode == 0, said
        assert "0 bytes spill stores" in said
        taken += 1
    if not taken:
        pytest.skip(f"needs a ptxas that knows {arch}; triton brings none")


def test_both_sources_bound_their_slots() -> None:
    """A multiprocessor beyond the slots writes nothing, and each stamp has as many slots as are bounded by."""
    assert f"setp.ge.u32 %beyond, %slot, {NVIDIA_SLOTS};" in PTX
    assert f"mad.lo.u32 %index, %number, {NVIDIA_SLOTS}, %slot;" in PTX
    assert f"slot >= {AMD_SLOTS}u" in HIP
    assert f"number * {AMD_SLOTS}u + slot" in HIP
