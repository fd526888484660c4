"""The emulator: right results on every face, and every seeded bug rejected with its line."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernels.hip import emulator, emulator_objects
from kernels.hip.emulator import EmulationError, load
from kernels.hip.emulator_objects import SourceLines, compile_emulated, emulated_gpu_of
from kernels.hip.faces import EMULATED_ARCH
from kernels.hip.sources import HipKernel
from pytest_attnperf.errors import ToolMissingError, UsageError

if TYPE_CHECKING:
    import torch

KERNELS = Path(__file__).resolve().parent / "emulator_kernels"
SEEDED = str(KERNELS / "seeded.hip")
MATRICES = str(KERNELS / "matrices.hip")
WAVES = {"gfx942": 64, "gfx1100": 32, "gfx1201": 32, "gfx1030": 32, "sm_90": 32}
ROWS, THREADS = 37, 128

MISSING = emulator.missing_emulator()
pytestmark = pytest.mark.skipif(bool(MISSING), reason="; ".join(MISSING))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty cache of objects, so that what is tested is what the sources say now."""
    return tmp_path_factory.mktemp("emulated")


Run = Callable[..., "tuple[torch.Tensor, ...]"]


@pytest.fixture(scope="module")
def run_seeded(cache: Path) -> Run:
    """Run the seeded kernel with a bug: the input, column sums, sums of waves, and neighbours."""
    import torch

    def run(bug: int, arch: str = "gfx1100", order: str = "forward", checked: bool = True) -> tuple[torch.Tensor, ...]:
        kernel = HipKernel(SEEDED, "seeded", THREADS, lds_bytes=4 * THREADS // WAVES[arch])
        loaded = load(kernel, arch=arch, order=order, checked=checked, cache=cache)
        rows = torch.randn(ROWS, 64, generator=torch.Generator().manual_seed(bug)).half()
        sums, waves = torch.full((2, THREADS), torch.nan), torch.full((2, THREADS), torch.nan)
        neighbours = torch.zeros(2, THREADS, dtype=torch.int32)
        loaded((2, 1, 1), rows, sums, waves, neighbours, ROWS, bug)
        return rows, sums, waves, neighbours

    return run


def _line(file: str, mark: str) -> int:
    """Number of the first line of a kernel's file that has `mark` in a comment."""
    lines = Path(file).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if f"[{mark}]" in line.partition("//")[2])


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("arch", WAVES)
def test_a_right_kernel_is_right_on_every_face_in_every_order(run_seeded: Run, arch: str, checked: bool) -> None:
    """Tiles, copies, barriers, shuffles, dynamic LDS and exchanges inside a wave give what they would on a GPU."""
    import torch

    for order in ("forward", "reverse", "shuffled", "shuffled-7"):
        rows, sums, waves, neighbours = run_seeded(0, arch, order, checked)
        expected = rows.double().sum(0).repeat(2).expand(2, THREADS)
        of_waves = expected.reshape(2, -1, WAVES[arch]).sum(-1).repeat_interleave(WAVES[arch], 1)
        assert torch.allclose(sums.double(), expected, atol=1e-5)
        assert torch.allclose(waves.double(), of_waves, atol=1e-4)
        assert torch.equal(neighbours, 2 * (torch.arange(THREADS, dtype=torch.int32) ^ 1).expand(2, THREADS))


FOUND = {
    1: (
        "no barrier after a tile is loaded",
        "race: thread 1 reads byte 2 of LDS (byte 2 of tile), which thread 0 wrote",
    ),
    2: ("no barrier before a tile is loaded", "race: thread 1 reads"),
    3: ("no barrier inside a wave, write to read", "race: thread 1 writes"),
    4: (
        "row bound off by one",
        "out of bounds: thread 40 of block (0, 0, 0) reads 8 bytes at offset 4736 of in, which has",
    ),
    5: ("LDS column not written", "read of unwritten LDS: thread 56 reads byte 112 of LDS (byte 112 of tile)"),
    6: (
        "barrier in divergent code",
        "divergent barrier: thread 0 waits here, thread 1 of the same block waits in barrier",
    ),
    7: ("hard-coded wave of 64", "shuffle out of the wave: lane 0 reads lane 32 of 32"),
    8: ("store past the end", "out of bounds: thread 127 of block (1, 0, 0) writes 4 bytes at offset 1024 of sums"),
    9: ("LDS row overflow", "index out of an array: thread 63"),
    11: ("copies_done is missing", "copy not done: thread 0 touches byte 0 of LDS (byte 0 of tile)"),
    13: ("two blocks write one output", "race: block 1, thread 0 writes byte 0 of sums, which another block (0) wrote"),
    14: (
        "a thread returns before a barrier",
        "divergent barrier: thread 0 waits here, thread 64 of the same block has",
    ),
    12: ("misaligned copy", "misaligned: thread 0 gives copy_async the address"),
    15: ("misaligned load", "misaligned address: thread 0"),
    16: (
        "shuffle in divergent code, one line of gpu.h",
        "divergent shuffle: thread 0 waits here, thread 1 of the same wave",
    ),
    17: ("shift by too many bits", "shift by too many bits or by a negative number: thread 15"),
    18: ("dynamic LDS past the end", "writes 4 bytes at offset 16 of dynamic LDS, which has 16 bytes"),
    19: ("no barrier inside a wave, read to write", "race: thread 1 "),
    21: ("all threads write one word", "race: thread 1 writes byte 0 of dynamic LDS, which thread 0 wrote"),
    22: ("copy to other memory than LDS", "not in LDS: thread 0 gives copy_async an address of other memory"),
    23: ("offsets that overflow", "signed overflow of a multiplication: thread 0"),
    24: ("a pointer to nothing", "out of bounds: thread 0 reads 4 bytes at 0x40, which is in no tensor and not in LDS"),
    20: ("write through a const pointer", "write to const: thread 0 writes offset 0 of in"),
}


@pytest.mark.parametrize("bug", FOUND, ids=lambda bug: FOUND[bug][0])
def test_a_seeded_bug_is_rejected_with_its_line(run_seeded: Run, bug: int) -> None:
    """Each bug of a kernel is an error that says what happened, and names the line of the source."""
    with pytest.raises(EmulationError) as caught:
        run_seeded(bug)
    message = str(caught.value)
    assert FOUND[bug][1] in message
    assert f"seeded.hip:{_line(SEEDED, str(bug))}" in message
    assert re.match(r"tests/kernels/hip/emulator_kernels/seeded\.hip:\d+: ", message)


@pytest.mark.parametrize("order", ["reverse", "shuffled-5"])
@pytest.mark.parametrize("bug", [1, 2, 3, 5, 11, 13, 19])
def test_a_race_is_found_in_every_order(run_seeded: Run, bug: int, order: str) -> None:
    """What is a race, or unwritten, does not depend on which thread happens to run first."""
    with pytest.raises(EmulationError, match=r"race|copy not done|unwritten"):
        run_seeded(bug, "gfx942", order)


def test_a_hard_coded_wave_gives_wrong_sums_where_the_wave_is_longer(run_seeded: Run) -> None:
    """The same kernel that is rejected with waves of 32 counts twice with waves of 64."""
    assert (run_seeded(7, "gfx942")[2] - run_seeded(0, "gfx942")[2]).abs().max() > 0.1


def test_uninitialised_registers_become_nan(run_seeded: Run) -> None:
    """An array of which one register was never written gives NaN, not what happened to be there."""
    assert bool(run_seeded(10)[1].isnan().all())


def test_a_variable_that_is_never_set_does_not_compile(cache: Path) -> None:
    """Where the compiler sees that a variable has no value, it is an error with the line."""
    with pytest.raises(EmulationError, match=r"seeded\.hip:\d+:\d+: error: variable 'sum' is uninitialized"):
        load(HipKernel(SEEDED, "uninitialised", THREADS, {"UNINITIALISED": "1"}), cache=cache)


@pytest.mark.parametrize("bf16", [False, True], ids=["f16", "bf16"])
@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1100", "gfx1201", "sm_90"])
def test_matrix_instructions_multiply(cache: Path, arch: str, bf16: bool) -> None:
    """Registers laid out as the manuals say give c + a b."""
    import torch

    columns, depth = 8 if arch == "sm_90" else 16, 32 if arch == "gfx950" else 16
    a, b, c = torch.randn(16, depth), torch.randn(depth, columns), torch.randn(16, columns)
    a, b = (x.to(torch.bfloat16 if bf16 else torch.float16) for x in (a, b))
    d = torch.full_like(c, torch.nan)
    kernel = HipKernel(MATRICES, "product", WAVES.get(arch, 64), {"ELEMENT_BF16": str(int(bf16))})
    load(kernel, arch=arch, cache=cache)((1, 1, 1), a, b, c, d, 0)
    assert torch.allclose(d.double(), c.double() + a.double() @ b.double(), atol=1e-5)


def test_rdna3_operands_must_be_held_twice(cache: Path) -> None:
    """A half wave that does not repeat the other is an error, for RDNA3 reads either."""
    import torch

    a, c = torch.ones(16, 16).half(), torch.zeros(16, 16)
    loaded = load(HipKernel(MATRICES, "product", 32), arch="gfx1100", cache=cache)
    line = _line(MATRICES, "1")
    with pytest.raises(
        EmulationError, match=rf"matrices\.hip:{line}: wmma operand b differs between lanes 4 and 20 in"
    ):
        loaded((1, 1, 1), a, a, c, c.clone(), 1)


@pytest.mark.parametrize(
    ("arch", "threads", "said"),
    [
        ("gfx942", 48, "matrix instruction in a wave of which only 48 of 64 lanes exist"),
        ("sm_90", 16, "ldmatrix in a wave of which only 16 of 32 lanes exist"),
    ],
)
def test_matrix_instructions_need_whole_waves(cache: Path, arch: str, threads: int, said: str) -> None:
    """A wave of which only some lanes exist is an error, for their registers would be anything."""
    import torch

    a, c = torch.ones(16, 16).half(), torch.zeros(16, 16)
    loaded = load(HipKernel(MATRICES, "product", threads, {"THREADS": str(threads)}), arch=arch, cache=cache)
    with pytest.raises(EmulationError, match=said):
        loaded((1, 1, 1), a, a, c, c.clone(), 0)


@pytest.mark.parametrize("room_mib", [1, 80], ids=["stacks", "tensors"])
def test_running_out_of_memory_is_an_error(cache: Path, room_mib: int) -> None:
    """Where the system gives no memory for stacks or for tensors, the message says so, and none is kept."""
    import resource

    import torch

    def mapped() -> int:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()

    a, c = torch.ones(16, 16).half(), torch.zeros(16, 16)
    large = torch.zeros(16 << 20, dtype=torch.uint8).view(torch.float32)
    loaded = load(HipKernel(MATRICES, "product", 64), arch="gfx942", cache=cache)
    limits, before = resource.getrlimit(resource.RLIMIT_AS), mapped()
    resource.setrlimit(resource.RLIMIT_AS, (before + (room_mib << 20), limits[1]))
    try:
        with pytest.raises(EmulationError, match="cannot get memory for stacks and shadow memory; use smaller tensors"):
            loaded((1, 1, 1), a, a, c, large, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert mapped() - before < 16 << 20, "stacks alone are 32 MiB"


def test_wrong_arguments_are_named(cache: Path) -> None:
    """Each argument that a kernel cannot take is an error with its name, before anything runs."""
    import torch

    loaded = load(HipKernel(MATRICES, "product", 32), arch="gfx1100", cache=cache)
    half, floats = torch.ones(16, 16).half(), torch.zeros(16, 16)
    for arguments, said in (
        ((half, half, floats, floats), "takes 5 arguments (a, b, c, d, flaw), not 4"),
        ((half, half.t()[:8].t(), floats, floats, 0), "'b' is not contiguous: shape (16, 8), strides (16, 1)"),
        ((half, half.float(), floats, floats, 0), "'b' must be of dtype float16, got float32"),
        ((half, half, floats.to("meta"), floats, 0), "'c' must be a CPU tensor for the emulator, got one on meta"),
        ((half, half, floats, 3, 0), "'d' must be a CPU tensor, got the number 3"),
        ((half, half, floats, floats, half), "'flaw' must be a 32-bit integer, got Tensor"),
        ((half, half, floats, floats, 2**31), "'flaw' must be a 32-bit integer, got 2147483648"),
    ):
        with pytest.raises(EmulationError, match=re.escape(said)):
            loaded((1, 1, 1), *arguments)
    for grid in ((1, 0, 1), (1 << 16, 1 << 15, 1)):
        with pytest.raises(EmulationError, match=r"a grid is three numbers from 1 on, less than 2\^31 blocks, not"):
            loaded(grid, half, half, floats, floats, 0)


def test_wrong_kernels_are_named(cache: Path, tmp_path: Path) -> None:
    """A file, a function, a number of threads, a face or an order that do not exist are errors that list what does."""
    with pytest.raises(EmulationError, match="there is no file"):
        load(HipKernel(str(tmp_path / "none.hip"), "none", 32), cache=cache)
    with pytest.raises(EmulationError, match=r"has no kernel 'sum'; it has: seeded, uninitialised"):
        load(HipKernel(SEEDED, "sum", 32), cache=cache)
    with pytest.raises(EmulationError, match=r"is KERNEL\(32\), and is launched with 64 threads"):
        load(HipKernel(MATRICES, "product", 64), arch="gfx1100", cache=cache)
    with pytest.raises(UsageError, match="emulator does not know 'gfx906'"):
        load(HipKernel(SEEDED, "seeded", 128), arch="gfx906", cache=cache)
    with pytest.raises(UsageError, match="unknown order 'forward-3'"):
        load(HipKernel(SEEDED, "seeded", 128), order="forward-3", cache=cache)


def test_transposed_reads_give_columns(cache: Path) -> None:
    """Of 4 rows that 16 lanes name in any order, a lane gets a column, as CDNA4's manual says."""
    import torch

    rows = torch.randn(16, 16).to(torch.float16)
    columns = torch.full((64, 4), torch.nan, dtype=torch.float16)
    load(HipKernel(MATRICES, "transposed", 64), arch="gfx950", cache=cache)((1, 1, 1), rows, columns)
    assert torch.equal(columns, torch.cat([rows[first : first + 4].T for first in (12, 8, 4, 0)]))


@pytest.mark.parametrize("flaw", [0, 2])
def test_loads_to_lds_lie_side_by_side(flaw: int, cache: Path) -> None:
    """A lane's words come to its place behind the address that the wave's first lane names, zeros beyond the limit."""
    import torch

    rows = torch.randn(64, 8).to(torch.float16)
    found = torch.full((64, 8), torch.nan, dtype=torch.float16)
    load(HipKernel(MATRICES, "loaded", 64), arch="gfx950", cache=cache)((1, 1, 1), rows, found, 50, flaw)
    rows[50:] = 0
    assert torch.equal(found, rows.flip(0))


def test_loads_to_lds_are_late(cache: Path) -> None:
    """A barrier alone does not wait for them."""
    import torch

    rows, found = torch.zeros(2, 64, 8, dtype=torch.float16)
    with pytest.raises(EmulationError, match=r"matrices\.hip:\d+: copy not done: .*byte 1024 of tile"):
        load(HipKernel(MATRICES, "loaded", 64), arch="gfx950", cache=cache)((1, 1, 1), rows, found, 64, 1)


def test_the_environment_names_the_face(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an architecture the one of ATTNPERF_HIP_EMULATE is imitated, else gfx942."""
    monkeypatch.delenv(EMULATED_ARCH, raising=False)
    assert emulated_gpu_of(None) == emulated_gpu_of("gfx90a") == emulator_objects.EmulatedGpu(942, 64)
    assert emulated_gpu_of("gfx950") == emulator_objects.EmulatedGpu(950, 64)
    monkeypatch.setenv(EMULATED_ARCH, "gfx1151")
    assert emulated_gpu_of(None) == emulator_objects.EmulatedGpu(1100, 32)


def test_tensors_that_overlap_are_one_memory(cache: Path) -> None:
    """c may be d: what is written through one name is read through the other."""
    import torch

    a, c = torch.eye(16).half(), torch.zeros(16, 16)
    load(HipKernel(MATRICES, "product", 64), arch="gfx942", cache=cache)((1, 1, 1), a, a, c, c, 0)
    assert torch.equal(c, torch.eye(16))


def test_objects_are_kept_and_shared_safely(tmp_path: Path) -> None:
    """Threads that want one object at once all get the same, one is kept on disk, and another run reads that."""
    kernel, face = HipKernel(MATRICES, "product", 64), emulated_gpu_of("gfx942")
    made: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: made.append(compile_emulated(kernel, face, False, tmp_path).data))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = sorted(tmp_path.iterdir())
    again = compile_emulated(kernel, face, False, tmp_path)
    assert len(made) == 2
    assert again.data in made
    assert sorted(tmp_path.iterdir()) == kept
    assert len(kept) == 2, "the kernel and the runtime"


def test_code_without_a_line_is_near_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the compiler merged code of several lines, the message names the last line before it."""

    def answers(_: SourceLines, *questions: str) -> list[dict[str, object]]:
        lines = {"CODE 0x3c": 57, "CODE 0x3b": 56}
        return [{"Symbol": [{"FileName": "a.hip", "Line": lines.get(each, 0), "Column": 1}]} for each in questions]

    monkeypatch.setattr(SourceLines, "_ask_symbolizer", answers)
    assert SourceLines(b"").format_position(0x3D) == "a.hip:57"
    assert SourceLines(b"").format_position(0x40) == "a.hip:near 57"


def test_without_a_symbolizer_the_line_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug is an error even where llvm-symbolizer is missing; the message says what to install."""
    monkeypatch.setattr(emulator_objects, "find_symbolizer", lambda: "")
    lines = SourceLines(b"")
    assert lines.format_position(64) == "an unknown line (llvm-symbolizer is missing: install llvm-22)"
    assert lines.find_variable(64) == "?"
    assert lines.is_same_position(64, 65)


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another processor, one without half floats, and no clang are reasons that say what is needed."""

    def no_clang(arch: str) -> None:
        raise ToolMissingError("there is no clang++ on PATH")

    assert emulator.missing_emulator() == []
    monkeypatch.setattr(emulator_objects, "find_toolchain", no_clang)
    assert emulator.missing_emulator() == ["the HIP emulator compiles with clang: there is no clang++ on PATH"]
    monkeypatch.setattr(emulator_objects, "_has_half_floats", lambda: False)
    assert "needs a CPU with AVX2, FMA and F16C" in emulator.missing_emulator()[0]
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert emulator.missing_emulator() == ["the HIP emulator runs on x86-64, not on riscv64"]
