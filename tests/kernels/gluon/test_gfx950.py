"""What the Gluon kernel for gfx950 becomes: builds, waits and barriers in its loop, and its banks of LDS."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

import kernels
from kernels.gluon.prefill.builds import KERNELS, VARIANTS
from kernels.gluon.prefill.space import HEAD_DIMS
from pytest_attnperf.backends import Registry
from pytest_attnperf.codeobject.analysis import Analyser
from pytest_attnperf.codeobject.built import Built, assembly_text
from pytest_attnperf.codeobject.compile_triton import compile_triton
from pytest_attnperf.kernel_builds import ALL_ARCHS, KernelBuild, KernelRegistry, TritonSource
from tests.kernels.hip.test_bank_conflicts import conflict_cycles

pytest.importorskip("triton", minversion="3.8")
gfx950 = pytest.importorskip("kernels.gluon.prefill.gfx950")

KERNEL = KERNELS[0]
BUILDS = {build.config: build for build in KERNEL.builds("gfx950")}
ROWS = {64: 32, 128: 32, 256: 16}
"""Head dimension -> rows of the matrix instruction of its rule."""
CHUNK, TILE = 512, 8192
"""Elements that a wave copies at once, and of a tile."""

TILE_COPIES = 8
"""Instructions of a wave that copy K and V of a tile: 16 chunks each over 4 waves."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Built]:
    """Every build for gfx950, compiled."""
    return {config: compile_one(build, tmp_path_factory.getbasetemp()) for config, build in BUILDS.items()}


def compile_one(build: KernelBuild, cache: Path) -> Built:
    """The build's code object."""
    assert isinstance(build.source, TritonSource)
    return compile_triton(build, build.source, cache)


def key_loops(assembly: str) -> list[list[str]]:
    """The instructions of each innermost loop with matrix instructions."""
    lines = [line.split(";")[0].strip() for line in assembly.splitlines()]
    starts = {line[:-1]: number for number, line in enumerate(lines) if line.startswith(".LBB") and line.endswith(":")}
    found = []
    for number, line in enumerate(lines):
        jump = re.match(r"s_cbranch_\w+ (\.LBB\w+)", line)
        if jump and starts[jump[1]] < number:
            body = [each for each in lines[starts[jump[1]] + 1 : number] if each and not each.startswith(".")]
            if any(each.startswith("v_mfma") for each in body):
                found.append(body)
    return found


def find_hazards(loop: list[str]) -> list[str]:
    """What lets a wave read LDS before all waves have written it, or write it while another may still read.

    Of K, read by ds_read_b128, V's copies may be on their way; of V, read by ds_read_b64_tr, none. A copy may begin
    behind a barrier that every wave passes with its reads done.
    """
    found = []
    running = left_at_barrier = TILE_COPIES
    reading = read_since_barrier = False
    for line in loop * 2:  # what an iteration leaves behind meets the next one
        if line.startswith("ds_read"):
            if left_at_barrier > (TILE_COPIES // 2 if "b128" in line else 0):
                found.append(f"{line}: {left_at_barrier} copies may be on their way")
            reading = read_since_barrier = True
        elif is_copy(line):
            if read_since_barrier:
                found.append(f"{line}: a wave may still read LDS")
            running += 1
        elif line.startswith("s_waitcnt"):
            waited = re.search(r"vmcnt\((\d+)\)", line)
            running = min(running, int(waited[1])) if waited else running
            reading = reading and "lgkmcnt(0)" not in line
        elif line.startswith("s_barrier"):
            left_at_barrier, read_since_barrier = running, reading
    return found


def is_copy(line: str) -> bool:
    """Whether this is a copy from memory to LDS of 16 bytes a lane."""
    return line.startswith("buffer_load_dwordx4") and line.endswith("lds")


@pytest.mark.parametrize("config", BUILDS)
def test_the_loop_is_the_pipeline_that_the_source_describes(config: str, built: dict[str, Built]) -> None:
    """Both loops copy 16 bytes a lane straight to LDS, wait for K with V on its way, multiply by gfx950's largest
    instructions, and read transposed; the kernel has no scratch, and two waves fit a SIMD."""
    code = Analyser()(built[config], BUILDS[config])
    rows = ROWS[int(config.partition("-")[0][1:])]
    loops = key_loops(assembly_text(built[config]))
    assert len(loops) == 2
    for loop in loops:
        assert sum(map(is_copy, loop)) == TILE_COPIES
        assert not any(line.startswith(("scratch", "buffer_store")) or "bpermute" in line for line in loop)
        assert sum("vmcnt(4)" in line for line in loop) == 1
        assert sum("ds_read_b64_tr_b16" in line for line in loop) == 32
        assert sum(line.startswith("s_barrier") for line in loop) == 2
        products = {line.split()[0] for line in loop if line.startswith("v_mfma")}
        assert {each.split("_")[3] for each in products} == {f"{rows}x{rows}x{CHUNK // rows}"}
    assert (code.vgpr_spills, code.sgpr_spills, code.scratch_bytes) == (0, 0, 0)
    assert code.key_loop is not None
    assert code.key_loop.waves == 2


@pytest.mark.parametrize("config", BUILDS)
def test_no_wave_meets_another_in_lds(config: str, built: dict[str, Built]) -> None:
    """In the compiled loops; and without any one of its waits for copies or barriers one does."""
    for loop in key_loops(assembly_text(built[config])):
        assert find_hazards(loop) == []
        guards = [number for number, line in enumerate(loop) if line.startswith("s_barrier") or "vmcnt" in line]
        assert len(guards) == 4
        for number in guards:
            assert find_hazards(loop[:number] + loop[number + 1 :])


def lds_bytes(head_dim: int, block_n: int, padding: int) -> dict[tuple[int, int], int]:
    """(key, column) -> its place in LDS."""
    bases = gfx950.chunks(head_dim, block_n, padding).offset_bases
    places = {}
    for number in range(head_dim * block_n):
        set_bits = [base for bit, base in enumerate(bases) if number >> bit & 1]
        where = sum(key for key, _ in set_bits), sum(column for _, column in set_bits)
        places[where] = 2 * (number + number // CHUNK * padding)
    return places


def conflicts_of_k(head_dim: int, padding: int) -> set[int]:
    """Cycles that conflicts add to the reads of the K operand: 8 columns of a key per lane."""
    rows, block_n = ROWS[head_dim], TILE // head_dim
    places = lds_bytes(head_dim, block_n, padding)
    firsts = itertools.product(range(0, block_n, rows), range(0, head_dim, CHUNK // rows))
    return {
        conflict_cycles("gfx950", 16, False, {n: places[key + n % rows, column + n // rows * 8] for n in range(64)})
        for key, column in firsts
    }


def conflicts_of_v(head_dim: int, padding: int) -> set[int]:
    """The same of the transposed reads of V: 4 columns of a key per lane, 16 lanes for 4 keys and 16 columns, which the
    hardware transposes; lanes of an operand hold 8 keys, by two reads."""
    rows, block_n = ROWS[head_dim], TILE // head_dim
    places = lds_bytes(head_dim, block_n, padding)
    across = rows // 16
    lanes = [(n, n // 16 // across * 8 + n % 16 // 4, n // 16 % across * 16 + n % 4 * 4) for n in range(64)]
    firsts = itertools.product(range(0, block_n, CHUNK // rows), (0, 4), range(0, head_dim, rows))
    return {
        conflict_cycles("gfx950", 8, False, {n: places[key + half + down, column + right] for n, down, right in lanes})
        for key, half, column in firsts
    }


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_reads_meet_no_other_in_a_bank(head_dim: int) -> None:
    """By the order of chunks and their padding; with half or twice the padding they do."""
    rows = ROWS[head_dim]
    assert conflicts_of_k(head_dim, 256 // rows) == conflicts_of_v(head_dim, rows) == {0}
    for other in (rows // 2, rows * 2):
        assert min(conflicts_of_k(head_dim, 256 // other)) > 0
        assert min(conflicts_of_v(head_dim, other)) > 0


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_padding_is_that_of_tritons_compiler(head_dim: int) -> None:
    """The layouts of K and V pad as many elements after as many as those that Triton computes for the operands."""
    gl = pytest.importorskip("triton.experimental.gluon.language")
    compute = getattr(gl.amd.cdna4, "compute_efficient_padded_shared_layout", None)
    if compute is None:
        pytest.skip("this Triton does not export how it pads; 3.9 does")
    rows, block_n = ROWS[head_dim], TILE // head_dim
    operand = gl.DotOperandLayout(1, gl.amd.AMDMFMALayout(4, [rows, rows, CHUNK // rows], True, [4, 1]), 8)
    k = compute(operand, [head_dim, block_n], gl.bfloat16, True)
    v = compute(operand, [block_n, head_dim], gl.bfloat16, False)
    assert [*map(list, k.interval_padding_pairs)] == gfx950.chunks(
        head_dim, block_n, 256 // rows
    ).interval_padding_pairs
    assert [*map(list, v.interval_padding_pairs)] == gfx950.chunks(head_dim, block_n, rows).interval_padding_pairs


def test_it_is_registered_and_built_for_its_architectures_only() -> None:
    """The registry holds the kernel and its backend; elsewhere it says that there is none."""
    registry, backends = KernelRegistry(), Registry()
    kernels.register_kernels(registry)
    kernels.register(backends)
    assert registry.get("gluon.prefill").backends == (backends.get("gluon.flash").name,)
    assert len(BUILDS) == len(VARIANTS)
    for arch in ALL_ARCHS:
        assert bool(registry.list_builds([arch], ["gluon.prefill"])) == (arch == "gfx950")
    assert "not for gfx1100" in KERNEL.unsupported_reasons("gfx1100")[0]
