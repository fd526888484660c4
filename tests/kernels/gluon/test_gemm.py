"""The source of `gluon.gemm` multiplies matrices, mistakes in it are found, and what it does not compute is refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernels.gluon.gemm import launch
from kernels.gluon.gemm.backend import BACKENDS, GluonGemm
from kernels.gluon.gemm.builds import KERNELS
from kernels.gluon.gemm.launch import choose_launcher, gemm, plan
from kernels.gluon.gemm.schedule import choose_schedule
from kernels.gluon.gemm.space import SINCE, SPACE, problem_of
from pytest_attnperf.correctness.references import References
from pytest_attnperf.environment.device import identify_device
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.families import parse_workload
from pytest_attnperf.workloads.gemm import Gemm
from tests.kernels.gluon.changed import load_changed
from tests.kernels.judging import find_problems, find_wrong_calls

torch = pytest.importorskip("torch")
GEMM = BACKENDS[0]
H200 = DeviceInfo(kind="cuda", arch="sm_90", product="h200")

CASES = (
    "gemm-m200-n520-k520-f16",
    "gemm-m200-n520-k520-bf16-nt",
    "gemm-m300-n264-k72-f16-outf32",
    "gemm-m5-n8-k8-bf16-nt-outf32",
    "gemm-m130-n1032-k328-bf16",
    "gemm-m385-n256-k64-f16-nt",
    "gemm-m200-n520-k912-f8e4m3-nt",
    "gemm-m129-n272-k16-f8e5m2-nt-outf16",
    "gemm-m130-n264-k1160-f16",
    "gemm-m129-n272-k2320-f8e4m3-nt",
)
"""Each dtype, layout and result; fewer and more rows, columns and K than a tile; one K tile, and more than buffers;
fewer and more tiles than the programs of a stand-in, which are 3. The last ones have a tile that is cut along K."""

WIDE, NARROW, FP8, CUT = CASES[0], CASES[2], CASES[6], CASES[8]

MISTAKES = {
    "tiles are not awaited": (
        WIDE,
        "    gl.nvidia.hopper.mbarrier.wait(ready.index(slot), step // SLOTS & 1)\n",
        "",
    ),
    "tiles are awaited a phase early": (WIDE, "ready.index(slot), step // SLOTS & 1", "ready.index(slot), 1"),
    "a buffer need not be free": (
        WIDE,
        "            gl.nvidia.hopper.mbarrier.wait(free.index(slot), (step // SLOTS & 1) ^ 1)\n",
        "",
    ),
    "no buffer is free at first": (WIDE, "(step // SLOTS & 1) ^ 1", "step // SLOTS & 1"),
    "a buffer is freed before it was read": (WIDE, "before = (step + tile_k + SLOTS - 1) % SLOTS", "before = _slot"),
    "the last buffer is never freed": (
        WIDE,
        "    gl.nvidia.hopper.mbarrier.arrive(free.index((step + tiles_k - 1) % SLOTS), count=1)\n",
        "",
    ),
    "a buffer is freed before the first product": (WIDE, "count=1, pred=tile_k > 0)", "count=1)"),
    "a product is awaited when it is issued last": (WIDE, "warpgroup_mma_wait(1, deps", "warpgroup_mma_wait(2, deps"),
    "the last product is not awaited": (WIDE, "    acc = gl.nvidia.hopper.warpgroup_mma_wait(0, deps=[acc])\n", ""),
    "bytes of a only": (WIDE, "(BLOCK_M + BLOCK_N) * BLOCK_K", "BLOCK_M * BLOCK_K"),
    "both groups take the first rows": (WIDE, "tiles_k, 1, TRANSPOSED", "tiles_k, 0, TRANSPOSED"),
    "one group frees for both": (WIDE, "init(free.index(slot), count=2)", "init(free.index(slot), count=1)"),
    "steps begin anew with each tile": (WIDE, "        step += to_k - from_k\n", ""),
    "tiles are loaded in another order": (
        WIDE,
        "start_m, start_n = tile_m * BLOCK_M, tile_n * BLOCK_N",
        "start_m, start_n = tile_n * BLOCK_M, tile_m * BLOCK_N",
    ),
    "no fence before the store": (WIDE, "        gl.nvidia.hopper.fence_async_shared()\n", ""),
    "a buffer is overwritten while it is stored": (WIDE, "store_wait(PIECES - 1)", "store_wait(PIECES)"),
    "the last stores are not awaited": (WIDE, "    gl.nvidia.hopper.tma.store_wait(0)\n", ""),
    "every piece at the first one's place": (WIDE, "start_n + at * COLUMNS", "start_n"),
    "even and odd columns": (WIDE, "2, tile.shape[1] // 2]), [0, 2, 1]", "tile.shape[1] // 2, 2]), [0, 1, 2]"),
    "one scale": (FP8, "gl.load(a_scale_ptr) * gl.load(b_scale_ptr)", "gl.load(a_scale_ptr)"),
    "unscaled": (FP8, "piece = piece * scale", "piece = piece * 1.0"),
    "the left half twice": (FP8, "b.slice(HALF, HALF)", "b.slice(0, HALF)"),
    "promoted sums are added twice": (
        FP8,
        "b.slice(HALF, HALF).permute([1, 0]), part, use_acc=False)",
        "b.slice(HALF, HALF).permute([1, 0]), part)",
    ),
    "a part is stored as a tile": (CUT, "if not CUT or item < whole:", "if not CUT or item >= 0:"),
    "every part at the first one's place": (CUT, "(item - whole) * BLOCK_M, 0, PART", "0 * BLOCK_M, 0, PART"),
    "a buffer of fp8 is never freed": (
        FP8,
        "        gl.nvidia.hopper.mbarrier.arrive(free.index(slot), count=1)\n",
        "",
    ),
}

IN_OTHER_FILES = {
    "every group has as many rows": (
        NARROW,
        "work",
        "rows = gl.minimum(tiles_m - first_m, GROUP_M)",
        "rows = GROUP_M",
    ),
    "every part begins at 0": (CUT, "work", "from_k = part * tiles_k // parts", "from_k = 0 * part"),
    "whole tiles are cut": (CUT, "work", "parts = gl.where(item < whole, 1, parts)", "parts = parts"),
    "the last part is left out": (CUT, "sum_parts", "range(parts)", "range(parts - 1)"),
    "parts of other tiles": (CUT, "sum_parts", "(part * cut + gl.program_id(0))", "(part + gl.program_id(0) + 1)"),
    "rows of the next tile": (CUT, "sum_parts", "rows = tile_m * BLOCK_M + rows", "rows = rows"),
    "rows behind the last one": (CUT, "sum_parts", "(rows < size_m)[:, None]", "(rows >= 0)[:, None]"),
}
"""Mistakes in the files that `sm_90.py` imports: case, file, what is right and what is wrong."""


@pytest.fixture
def find_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, poisoned: None) -> Callable[..., tuple[str, ...]]:
    """`find_wrong(workload id, right="", wrong="", file="sm_90", **constants)`: what is wrong with the product by the
    kernel, whose source has `wrong` in the place of `right`, or what the stand-in refuses to do."""
    pytest.importorskip("triton", minversion="3.6")
    from tests.kernels.gluon.stand_in import StandInError
    from tests.kernels.gluon.stand_in_hopper import ExecutedOnHopper

    def find(text: str, right: str = "", wrong: str = "", file: str = "sm_90", **constants: Any) -> tuple[str, ...]:
        folder = Path(launch.__file__).parent
        changed = load_changed(folder / f"{file}.py", right, wrong, tmp_path)
        module = changed if file == "sm_90" else load_changed(folder / "sm_90.py", "", "", tmp_path)
        for name in ("find_work", "sum_parts_kernel"):
            setattr(module, name, getattr(changed, name, getattr(module, name)))
        module.gemm_sm_90_kernel = ExecutedOnHopper(module.gemm_sm_90_kernel)
        module.sum_parts_kernel = ExecutedOnHopper(module.sum_parts_kernel)
        monkeypatch.setattr(launch, "choose_launcher", lambda _arch: module.launch_sm_90)
        workload, inputs, expected = _draw(text)
        config = {**SPACE.choose("sm_90", problem_of(workload)).config, "GROUP_M": 2, "CUT": True, **constants}
        settings = {"arch": "sm_90", "transposed": workload.layout == "nt", "config": config}
        try:
            out = gemm(*inputs[:2], inputs[2:] or None, **settings, out_dtype=workload.out_stored_as)
        except StandInError as refused:
            return (str(refused),)
        return find_problems(expected, {"out": out})

    return find


@functools.cache
def _draw(text: str) -> tuple[Gemm, Any, Any]:
    workload = Gemm.parse(text)
    inputs = workload.make_inputs(1, "cpu", planted=True)
    return workload, inputs, References().compute_expected(workload, inputs, seed=1, planted=True)


@pytest.mark.parametrize("case", CASES)
def test_the_source_multiplies_matrices(case: str, find_wrong: Any) -> None:
    """The kernel's own source, executed without layouts, is within budget, and reads nothing before it has arrived."""
    assert find_wrong(case) == ()


@pytest.mark.parametrize("constants", [
    {"SLOTS": 3, "PIECES": 4}, {"SLOTS": 2, "PIECES": 1}, {"BLOCK_N": 128, "SLOTS": 6, "GROUP_M": 8},
])  # fmt: skip
@pytest.mark.parametrize("case", [WIDE, FP8])
def test_other_configurations_are_right(case: str, constants: dict[str, int], find_wrong: Any) -> None:
    """More and fewer buffers, and a narrower tile."""
    assert find_wrong(case, **constants) == ()


def test_fp8_without_promotion_is_right_where_products_are_exact(find_wrong: Any) -> None:
    """The other loop takes fp8 too; that tensor cores add fewer bits there is not modelled."""
    assert find_wrong(FP8, PROMOTE=False) == ()


@pytest.mark.parametrize(("name", "case", "right", "wrong"), [(name, *mistake) for name, mistake in MISTAKES.items()])
def test_a_mistake_is_found(name: str, case: str, right: str, wrong: str, find_wrong: Any) -> None:
    """A dropped wait, a wrong buffer, an order: the outputs are wrong, or the stand-in refuses the access."""
    assert find_wrong(case, right, wrong), name


@pytest.mark.parametrize(("name", "case", "file", "right", "wrong"), [(a, *b) for a, b in IN_OTHER_FILES.items()])
def test_a_mistake_in_another_file_is_found(
    name: str, case: str, file: str, right: str, wrong: str, find_wrong: Any
) -> None:
    """In which item is computed, and in how parts are added."""
    assert find_wrong(case, right, wrong, file), name


@pytest.mark.parametrize(("text", "device", "reasons"), [
    ("gemm-m64-n64-k64-f16", DeviceInfo("cpu", "cpu-x86_64", "cpu", interpreted=True), ["does not run Gluon"]),
    ("gemm-m64-n64-k64-f16", DeviceInfo("rocm", "gfx942", "mi300x"), ["has a kernel for sm_90, not for gfx942; use"]),
    ("gemm-m64-n64-k64-f32", H200, ["takes f16, bf16, f8e4m3, f8e5m2, not f32; use triton.gemm"]),
    ("gemm-m64-n64-k64-i8-nt", H200, ["not i8; use triton.gemm"]),
    ("gemm-m64-n64-k64-f8e4m3", H200, ["takes fp8 b stored (N, K) only, as wgmma reads 8-bit elements along K"]),
    ("gemm-m64-n64-k64-f8e4m3-nt-outf32", H200, ["an f32 result of f8e4m3 must have fp32 precision"]),
    ("gemm-m63-n65-k129-f16", H200, ["a's are 258 bytes, b's are 130 bytes, out's are 130 bytes; use triton.gemm"]),
    ("gemm-m63-n64-k129-bf16-nt", H200, ["multiple of 16 bytes; a's are 258 bytes, b's are 258 bytes; use"]),
])  # fmt: skip
def test_what_it_does_not_compute_is_refused(text: str, device: DeviceInfo, reasons: list[str]) -> None:
    """In words that name the workload's property, what there is, and what takes it."""
    found = GEMM.unsupported_reasons(parse_workload(text), device)
    assert len(found) == len(reasons)
    assert all(reason in one for reason, one in zip(reasons, found, strict=True))


def test_the_launcher_says_what_is_wrong_with_its_arguments() -> None:
    """dtype, layout, rows, address and architecture, each with what is allowed."""
    pytest.importorskip("triton", minversion="3.6")
    choices: dict[str, Any] = {"arch": "sm_90", "transposed": False, "config": {}}
    square, ragged = torch.zeros(64, 64), torch.zeros(64, 60, dtype=torch.float16)
    narrow, one = square.to(torch.float8_e4m3fn), torch.ones(1)
    with pytest.raises(UsageError, match="a and b are float32; they must be one of float16, bfloat16, float8_e4m3fn"):
        gemm(square, square, **choices)
    with pytest.raises(UsageError, match=r"b is float8_e4m3fn and stored \(K, N\); wgmma reads 8-bit elements along K"):
        gemm(narrow, narrow, (one, one), **choices)
    with pytest.raises(UsageError, match=r"b has rows of 120 bytes at address 0x.*; TMA copies multiples of 16 bytes"):
        gemm(square.half(), ragged, **choices)
    shifted = torch.zeros(64 * 64 + 1, dtype=torch.float16)[1:].view(64, 64)
    with pytest.raises(UsageError, match=r"a has rows of 128 bytes at address 0x.*2; TMA copies multiples of 16 bytes"):
        gemm(shifted, square.half(), **choices)
    with pytest.raises(UsageError, match=r"no Gluon kernel for gfx942; there is one for sm_90; use triton.gemm"):
        choose_launcher("gfx942")


@pytest.mark.parametrize(("tiles", "tiles_k", "block_n", "said"), [
    (132, 128, 256, "132 whole tiles"),  # the last wave is complete
    (196, 128, 256, "132 whole tiles, 64 in 2 parts"),
    (133, 128, 256, "132 whole tiles, 1 in 8 parts"),  # no more, as they are added one after another
    (16, 256, 256, "0 whole tiles, 16 in 8 parts"),  # fewer tiles than programs
    (199, 128, 256, "199 whole tiles"),  # more than half of a wave is left: no two programs for each tile
    (196, 23, 256, "196 whole tiles"),  # 12 K tiles of 23: too few are saved
    (196, 24, 256, "132 whole tiles, 64 in 2 parts"),
    (196, 24, 128, "196 whole tiles"),  # of half the columns
])  # fmt: skip
def test_an_incomplete_last_wave_is_cut_where_it_saves_time(tiles: int, tiles_k: int, block_n: int, said: str) -> None:
    """By tiles, waves of 132 programs, and K; every program gets at most one part, and each part has K tiles."""
    schedule = choose_schedule(tiles, 132, tiles_k, block_n)
    assert str(schedule) == said
    assert schedule.cut * schedule.parts <= 132
    assert schedule.parts <= tiles_k
    assert schedule.items == schedule.whole + schedule.cut * schedule.parts


def test_tiles_are_cut_only_where_the_configuration_asks_for_it() -> None:
    """`gluon.gemm` computes whole tiles."""
    config = SPACE.choose("sm_90", problem_of(Gemm(1792, 3584, 8192))).config
    assert str(plan(1792, 3584, 8192, 132, config)) == "196 whole tiles"
    assert str(plan(1792, 3584, 8192, 132, {**config, "CUT": True})) == "132 whole tiles, 64 in 2 parts"


def test_builds_exist_where_there_is_a_kernel() -> None:
    """Elsewhere the kernel says where."""
    (kernel,) = KERNELS
    assert [len(kernel.builds(arch)) > 0 for arch in ("sm_90", "gfx942")] == [True, False]
    assert kernel.unsupported_reasons("sm_90") == []
    assert kernel.unsupported_reasons("gfx942") == ["gluon.gemm has a kernel for sm_90, not for gfx942"]
    assert all(SPACE.rules_arch(arch) == arch for arch in SINCE)


@pytest.mark.parametrize("at", [0, 4, 6])
def test_a_build_compiles_for_its_architecture(at: int, tmp_path: Path) -> None:
    """Without a GPU: of floats, of fp8, and with tiles that are cut; within the shared memory of a multiprocessor."""
    pytest.importorskip("triton", minversion="3.6")
    from pytest_attnperf.codeobject.compile_triton import compile_triton
    from pytest_attnperf.kernel_builds import TritonSource

    build = KERNELS[0].builds("sm_90")[at]
    assert isinstance(build.source, TritonSource)
    built = compile_triton(build, build.source, tmp_path)
    assert built.kernel == "gemm_sm_90_kernel"
    assert built.lds_dynamic_bytes <= 227 * 1024


@pytest.mark.gpu
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: str(backend.name))
@pytest.mark.parametrize("case", CASES)
def test_right_on_a_gpu(case: str, backend: GluonGemm) -> None:
    """The compiled kernel is within budget on the same problems, where there is one for the device."""
    device = identify_device("cuda")
    workload = Gemm.parse(case)
    if reasons := backend.unsupported_reasons(workload, device):
        pytest.skip(reasons[0])
    assert find_wrong_calls(backend, workload, "cuda") == ()
