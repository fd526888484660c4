"""Every HIP kernel compiled for AMD's architectures, and the matrix steps by nvcc: what their machine code holds."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import kernels
from kernels.hip.builds import FLAGS, make_build
from kernels.hip.faces import face_of
from kernels.hip.prefill_builds import KERNELS as HIP_STEP_KERNELS
from kernels.hip.prefill_builds import SHAPES
from kernels.hip.sources import FOLDER
from kernels.hip.steps import STEPS, LadderStep, problem_of
from pytest_attnperf.codeobject.analysis import Analyser
from pytest_attnperf.codeobject.arch import lds_limit_bytes
from pytest_attnperf.codeobject.building import build_object
from pytest_attnperf.codeobject.built import object_bytes
from pytest_attnperf.codeobject.disassembly import disassemble
from pytest_attnperf.codeobject.hip_toolchain import hip_reasons
from pytest_attnperf.codeobject.objects import read_object, select_kernel
from pytest_attnperf.codeobject.tools import find_objdumps
from pytest_attnperf.kernel_builds import ALL_ARCHS, HipSource, Kernel, KernelBuild, KernelRegistry
from pytest_attnperf.records.code import KernelCode

MATRIX_STEPS = [step for step in STEPS if step.matrix]
NVCC_LIMIT_S = 120


def hip_kernels() -> dict[str, Kernel]:
    """Every registered kernel that is compiled from this folder, by name."""
    registry = KernelRegistry()
    kernels.register_kernels(registry)
    return {
        kernel.name: kernel
        for kernel in registry
        if any(isinstance(b.source, HipSource) for b in kernel.builds("gfx942"))
    }


KERNELS = hip_kernels()
FIRST = [(name, arch) for arch in ALL_ARCHS for name in KERNELS]


def compiled(declared: KernelBuild, cache: Path) -> bytes:
    """Its code object; skips where no clang compiles for its architecture."""
    if reasons := hip_reasons(declared.arch):
        pytest.skip("; ".join(reasons))
    return object_bytes(build_object(declared, cache))


def analysed(data: bytes, source: HipSource, name: str) -> KernelCode:
    """The kernel with its instructions; skips where nothing here disassembles it."""
    code = Analyser().analyse(
        data, name, kernel=source.kernel, threads=source.threads, lds_dynamic_bytes=source.dynamic_lds_bytes
    )
    if not code.instructions:
        pytest.skip(f"{name} was not disassembled: {code.undecoded}")
    return code


def stores(code: KernelCode) -> int:
    """Instructions that write to global memory."""
    return sum(count for name, count in code.instructions.items() if name.startswith("global_store"))


def hip_source(declared: KernelBuild) -> HipSource:
    """What it is compiled from."""
    assert isinstance(declared.source, HipSource)
    return declared.source


def products(defines: dict[str, str], depth: int) -> int:
    """Matrix instructions of both products of a tile of keys, 16 x 16 x `depth` each."""
    rows, keys, dims = (int(defines[name]) for name in ("ROW_TILES", "BLOCK_N", "HEAD_DIM"))
    return 2 * rows * (keys // 16) * (dims // 16) * 16 // depth


@pytest.mark.parametrize(("name", "arch"), FIRST)
def test_machine_code_is_what_the_step_says(name: str, arch: str, tmp_path: Path) -> None:
    """Results are stored, matrix instructions are there where promised and only there, and nothing is spilled."""
    declared = KERNELS[name].builds(arch)[0]
    code = analysed(compiled(declared, tmp_path), hip_source(declared), declared.id)
    assert stores(code) > 0
    assert bool(code.instructions.get("matrix")) == declared.matrix
    assert (code.vgpr_spills, code.sgpr_spills, code.scratch_bytes) == (0, 0, 0)
    assert code.lds_bytes <= lds_limit_bytes(arch)
    assert code.wave_size == face_of(arch).wave
    assert code.max_threads == hip_source(declared).threads
    if name == "hip.best" and arch in ("gfx942", "gfx950"):
        # Q K^T and P V are unrolled, once for tiles that are masked and once for those that are not.
        # One of gfx950's does the work of two, in the time of one.
        depth = 32 if arch == "gfx950" else 16
        assert code.instructions["matrix"] == 2 * products(dict(hip_source(declared).defines), depth)
        assert code.in_loops["matrix"] == code.instructions["matrix"]


@pytest.mark.parametrize("name", ["hip.prefetch", "hip.best"])
def test_the_products_do_not_wait_for_the_next_tile(name: str, tmp_path: Path) -> None:
    """Between the loads of the next tile and the first product of this one nothing waits for memory."""
    declared = KERNELS[name].builds("gfx942")[1]
    data = compiled(declared, tmp_path)
    content = read_object(data, declared.id)
    kernel = select_kernel(content, hip_source(declared).kernel, declared.id)
    (tool, *_) = find_objdumps("gfx942")
    listing = disassemble(content.elf, "gfx942", start=kernel.address, size=kernel.size, tool=tool).instructions
    product = next(i for i, one in enumerate(listing) if one.mnemonic.startswith("v_mfma"))
    load = max(i for i, one in enumerate(listing[:product]) if one.mnemonic.startswith("buffer_load"))
    barrier = max(i for i, one in enumerate(listing[:product]) if one.mnemonic == "s_barrier")
    assert barrier < load, "the loads of the loop stand between its barrier and its products"
    assert not any("vmcnt" in one.operands for one in listing[barrier:product])


@pytest.mark.parametrize(("arch", "width"), [("gfx942", 8), ("gfx1100", 16), ("gfx1201", 16)])
def test_the_output_is_stored_in_whole_pieces(arch: str, width: int, tmp_path: Path) -> None:
    """A lane stores what it has side by side of a row at once: one instruction for each 16 columns and 16 rows."""
    declared = KERNELS["hip.best"].builds(arch)[1]
    code = analysed(compiled(declared, tmp_path), hip_source(declared), declared.id)
    defines = hip_source(declared).defines
    tiles = int(defines["ROW_TILES"]) * int(defines["HEAD_DIM"]) // 16
    assert stores(code) == code.instructions[f"global_store_{width}B"] == tiles


@pytest.mark.soak
@pytest.mark.parametrize(("arch", "share"), [("gfx942", 0.45), ("gfx950", 0.40)])
def test_the_best_step_is_estimated_at_nearly_half_of_the_peak(arch: str, share: float, tmp_path: Path) -> None:
    """By the static issue model, +-30 %, for long causal sequences; products of gfx950 take half of gfx942's cycles."""
    step = next(step for step in STEPS if step.name == "hip.best")
    matrix_cycles = {64: 512, 128: 1024, 256: 2048} if arch == "gfx942" else {64: 256, 128: 512, 256: 1024}
    for head_dim, dtype in itertools.product(matrix_cycles, ("f16", "bf16")):
        shape = replace(SHAPES[0], head_dim=head_dim, head_dim_v=head_dim, dtype=dtype)
        kernel, _ = step.make_kernel(shape, arch, step.space.choose(arch, problem_of(shape)))
        declared = make_build(step.name, f"d{head_dim}_{dtype}", arch, kernel, settings={}, matrix=True, where="here")
        code = analysed(compiled(declared, tmp_path), hip_source(declared), declared.id)
        loop = code.key_loop
        assert loop is not None
        tiles = int(kernel.defines["ROW_TILES"]) * int(kernel.defines["BLOCK_N"]) / 64  # of 32 x 32 scores
        assert loop.peak_share >= share, declared.id
        assert loop.matrix_cycles == matrix_cycles[head_dim] * tiles
        assert loop.salu <= 44 * tiles, "branches included"
        assert code.vgpr_spills == code.sgpr_spills == 0


def refuse_spills(declared: KernelBuild, cache: Path) -> None:
    """Its registers hold everything, and its LDS is what a workgroup can have."""
    data, source = compiled(declared, cache), hip_source(declared)
    code = select_kernel(read_object(data, declared.id), source.kernel, declared.id).code
    assert (code.vgpr_spills, code.sgpr_spills, code.scratch_bytes) == (0, 0, 0), declared.id
    assert code.lds_static_bytes + source.dynamic_lds_bytes <= lds_limit_bytes(declared.arch), declared.id


@pytest.mark.parametrize("name", KERNELS)
def test_the_last_build_spills_nothing(name: str, tmp_path: Path) -> None:
    """It mostly has the largest heads."""
    refuse_spills(KERNELS[name].builds("gfx942")[-1], tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("arch", ALL_ARCHS)
@pytest.mark.parametrize("name", KERNELS)
def test_no_build_spills(name: str, arch: str, tmp_path: Path) -> None:
    """Every configuration that is shipped, on every architecture."""
    for declared in KERNELS[name].builds(arch):
        refuse_spills(declared, tmp_path)


def test_matrix_instructions_are_promised_by_three_steps() -> None:
    """On every architecture that is compiled for, and by no other kernel."""
    for arch in ALL_ARCHS:
        promised = [name for name, kernel in KERNELS.items() if any(each.matrix for each in kernel.builds(arch))]
        assert promised == [step.name for step in MATRIX_STEPS if not step.archs]


def test_a_step_without_amds_instructions_has_no_build() -> None:
    """What only NVIDIA has says so for every architecture, and is compiled for none."""
    (kernel,) = (one for one in HIP_STEP_KERNELS if one.name == "hip.wgmma")
    for arch in ALL_ARCHS:
        assert kernel.builds(arch) == ()
        assert kernel.unsupported_reasons(arch) == [
            f"hip.wgmma uses instructions that only sm_90 has, not {arch}; use hip.best"
        ]
    assert kernel.unsupported_reasons("sm_90") == [
        "hip.wgmma is compiled ahead for AMD architectures only; sm_90 compiles it when it is run"
    ]


def test_builds_are_few_and_for_amd() -> None:
    """Four at most of each kernel, with ids of their own; NVIDIA compiles a kernel when it is run."""
    for name, kernel in KERNELS.items():
        for arch in ALL_ARCHS:
            assert kernel.unsupported_reasons(arch) == []
            builds = kernel.builds(arch)
            assert 0 < len({each.id for each in builds}) == len(builds) <= 4
        assert kernel.unsupported_reasons("sm_90") == [
            f"{name} is compiled ahead for AMD architectures only; sm_90 compiles it when it is run"
        ]


def nvcc_command(step: LadderStep, cubin: Path) -> tuple[list[str], HipSource]:
    """How nvcc compiles a step in its first shape for an H200, and what it compiles."""
    choice = step.space.choose("sm_90", problem_of(SHAPES[0]))
    kernel, _ = step.make_kernel(SHAPES[0], "sm_90", choice)
    source = HipSource(kernel.path, kernel.function, kernel.defines, FLAGS, kernel.threads, kernel.lds_bytes)
    defines = [f"-D{name}={value}" for name, value in kernel.defines.items()]
    arch = "sm_90a" if kernel.specific else "sm_90"
    command: Sequence[str] = ("-x", "cu", f"-arch={arch}", "-cubin", f"-I{FOLDER}", *FLAGS, *defines)
    return ["nvcc", *command, str(kernel.path), "-o", str(cubin)], source


@pytest.mark.soak
@pytest.mark.parametrize("step", MATRIX_STEPS, ids=lambda step: step.name)
def test_nvcc_compiles_the_same_file(step: LadderStep, tmp_path: Path) -> None:
    """The one source gives matrix instructions and no local memory on NVIDIA, too."""
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    command, source = nvcc_command(step, tmp_path / "kernel.cubin")
    subprocess.run(command, check=True, capture_output=True, timeout=NVCC_LIMIT_S)
    code = analysed((tmp_path / "kernel.cubin").read_bytes(), source, step.name)
    assert (code.arch, code.scratch_bytes) == ("sm_90", 0)
    assert code.instructions["matrix"] > 0
    assert stores(code) > 0
    assert code.lds_bytes <= lds_limit_bytes("sm_90")
