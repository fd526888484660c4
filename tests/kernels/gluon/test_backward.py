"""The source of `gluon.flash_backward` computes gradients, mistakes in it are found, and what it does not compute is
refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernels.gluon.backward import launch
from kernels.gluon.backward.backend import BACKENDS
from kernels.gluon.backward.builds import KERNELS
from kernels.gluon.backward.space import SPACE, problem_of
from kernels.gluon.prefill.space import HEAD_DIMS
from pytest_attnperf.correctness.references import References
from pytest_attnperf.environment.device import identify_device
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.families import parse_workload
from tests.kernels.gluon.changed import load_changed
from tests.kernels.judging import find_problems, find_wrong_calls

torch = pytest.importorskip("torch")
FLASH = BACKENDS[0]
H200 = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
Find = Callable[..., tuple[str, ...]]

CASES = (
    "backward-b2-s70-kv333-h4-hk2-d128-bf16-causal",
    "backward-b1-s140-kv77-h2-hk1-d64-bf16-causal",
    "backward-b3-s70-kv31-h4-hk2-d128-f16",
    "backward-b1-s1-kv97-h4-hk1-d64-f16-causal",
    "backward-b1-s300-kv128-h2-d128-f16-causal",
    "backward-b1-s300-kv2-h1-d64-bf16-causal",
    "backward-b2-s129-kv257-h3-hk1-d128-bf16",
    "backward-b1-s256-h2-d64-f16",
    "varlen_backward-q1_200_64-kv300_2_129-h4-hk1-d128-bf16-causal",
    "varlen_backward-q5_64_65_1-h2-d64-bf16",
    "backward-b1-s140-kv77-h4-hk2-d256-f16-causal",
    "varlen_backward-q70_3-kv65_130-h2-d256-bf16",
    "backward-b1-s140-kv77-h2-hk1-d72-bf16-causal",
    "varlen_backward-q70_3-kv65_130-h2-hk1-d40-f16-causal",
    "backward-b2-s33-h2-d111-f16",
)
"""Each head dimension, dtype and mask; grouped heads; lengths around tiles of 64 rows and 128 keys; rows that see no
key, and sequences shorter than the longest; head dimensions of no tile."""

RAGGED, KEYLESS, PACKED = CASES[0], CASES[1], CASES[8]
MANY = CASES[4]
FAR = f"{CASES[6]} far"
"""Scores far below 0, beside which those of keys behind the last, which are 0, have infinite weights."""

MAIN, PASSES = "sm_90.py", "passes.py"

MISTAKES = {
    "K and V are not awaited": (RAGGED, MAIN, "    gl.nvidia.hopper.mbarrier.wait(kv_ready, 0)\n", ""),
    "a tile is not awaited": (
        RAGGED,
        MAIN,
        "        gl.nvidia.hopper.mbarrier.wait(ready.index(slot), count // SLOTS & 1)\n",
        "",
    ),
    "a buffer need not be free": (
        MANY,
        MAIN,
        "            gl.nvidia.hopper.mbarrier.wait(free.index(slot), (count // SLOTS & 1) ^ 1)\n",
        "",
    ),
    "no buffer is free at first": (RAGGED, MAIN, "(count // SLOTS & 1) ^ 1", "count // SLOTS & 1"),
    "no buffer is freed": (MANY, MAIN, "count=1, pred=count > 0", "count=1, pred=count > 99"),
    "this tile's buffer is freed": (MANY, MAIN, "free.index((count + SLOTS - 1) % SLOTS)", "free.index(slot)"),
    "bytes without the statistics": (RAGGED, MAIN, " + 2 * BLOCK_M * 4)", ")"),
    "the products are not awaited": (
        RAGGED,
        MAIN,
        "warpgroup_mma_wait(1, deps=[s, dk])",
        "warpgroup_mma_wait(2, deps=[s, dk])",
    ),
    "dP is not awaited": (
        RAGGED,
        MAIN,
        "dp = gl.nvidia.hopper.warpgroup_mma_wait(1",
        "dp = gl.nvidia.hopper.warpgroup_mma_wait(2",
    ),
    "no fence before dS is multiplied": (
        RAGGED,
        MAIN,
        "        gl.nvidia.hopper.fence_async_shared()\n        gl.nvidia.hopper.mbarrier.arrive",
        "        gl.nvidia.hopper.mbarrier.arrive",
    ),
    "no fence before the store": (
        RAGGED,
        MAIN,
        "    gl.nvidia.hopper.fence_async_shared()\n    store_by",
        "    store_by",
    ),
    "a key too many": (RAGGED, MAIN, "offs_n - (keys - rows) if", "offs_n - (keys - rows) - 1 if"),
    "keys behind the last have weights": (FAR, MAIN, "gl.where(offs_n < keys, offs_n", "gl.where(offs_n < 999, offs_n"),
    "the causal edge without a mask": (
        MANY,
        MAIN,
        "gl.maximum(start_n + BLOCK_N - 1 - (keys",
        "gl.maximum(start_n - (keys",
    ),
    "the last keys without a mask": (FAR, MAIN, "    if start_n + BLOCK_N > keys:\n        all_from = rows\n", ""),
    "rows above the first that sees them": (
        MANY,
        MAIN,
        "start_m = gl.maximum(start_n - (keys - rows), 0)",
        "start_m = gl.maximum(start_n + BLOCK_M - (keys - rows), 0)",
    ),
    "every query head has its own K": (
        RAGGED,
        MAIN,
        "range(kv_head * group, kv_head * group + group):\n        dq_base",
        "range(kv_head, kv_head + group):\n        dq_base",
    ),
    "a block of keys has two programs": (
        RAGGED,
        MAIN,
        "linear % at_a_time // pairs",
        "linear % at_a_time // pairs // 2",
    ),
    "dQ is read in another order than it was added in": (
        RAGGED,
        PASSES,
        "parts.permute([0, 4, 2, 1, 3, 5])",
        "parts.permute([0, 5, 2, 1, 3, 4])",
    ),
    "dK is not scaled": (RAGGED, MAIN, "(dk * scale)", "dk"),
    "dS is not transposed": (RAGGED, MAIN, "ds_smem.permute([1, 0])", "ds_smem.permute([0, 1])"),
    "tiles of another sequence": (
        PACKED,
        MAIN,
        "[WRAP, first + length, WRAP - length + row, column]",
        "[WRAP, first + length, WRAP - length - 1 + row, column]",
    ),
    "packed rows from the first sequence on": (
        PACKED,
        PASSES,
        "padded = (first + batch * BLOCK) // BLOCK * BLOCK",
        "padded = first",
    ),
    "rows without keys": (
        KEYLESS,
        PASSES,
        'gl.where(lse == float("-inf"), float("inf"), lse * LOG2_E)',
        "lse * LOG2_E",
    ),
    "powers of e": (RAGGED, PASSES, "lse * LOG2_E", "lse"),
    "dQ begins with what was there": (
        RAGGED,
        PASSES,
        "        gl.store(dq_sums_ptr + padded[:, None] * HEAD_DIM + offs_d[None, :], zeros)\n",
        "",
    ),
    "dQ is not scaled": (RAGGED, PASSES, "(sums * scale)", "sums"),
    "dQ behind the last row": (RAGGED, PASSES, "mask=(offs_m < rows)[:, None]", "mask=(offs_m >= 0)[:, None]"),
}


@pytest.fixture
def find_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, poisoned: None, resized_by_torch: None) -> Find:
    """`find_wrong(workload id, file="", right="", wrong="", **config)`: what is wrong with the gradients of the
    kernels, in whose file `wrong` stands in the place of `right`, or what the stand-in refuses to do. `config` replaces
    entries of the configuration."""
    pytest.importorskip("triton", minversion="3.6")
    from kernels.gluon.backward import passes, sm_90
    from kernels.triton.backward.launch import Packed
    from tests.kernels.gluon.stand_in import Executed, StandInError
    from tests.kernels.gluon.stand_in_hopper import ExecutedOnHopper

    def find(text: str, file: str = "", right: str = "", wrong: str = "", **config: int) -> tuple[str, ...]:
        for module, names, executed in (
            (passes, ("backward_prepare_kernel", "backward_round_kernel"), Executed),
            (sm_90, ("backward_sm_90_kernel",), ExecutedOnHopper),
        ):
            path = Path(str(module.__file__))
            changed = load_changed(path, right, wrong, tmp_path) if path.name == file else module
            for name in names:
                monkeypatch.setattr(module, name, executed(getattr(changed, name)))
        workload, inputs, expected = _draw(text)
        packed = Packed(inputs[6], inputs[7], workload.max_q, workload.max_kv) if len(inputs) > 6 else None
        chosen = SPACE.choose("sm_90", problem_of(workload)).config | config
        try:
            found = launch.flash_backward(*inputs[:6], causal=workload.causal, config=chosen, packed=packed)
        except StandInError as refused:
            return (str(refused),)
        return tuple(find_problems(expected, dict(zip(("dq", "dk", "dv"), found, strict=True))))

    return find


@functools.cache
def _draw(text: str) -> tuple[Any, Any, Any]:
    workload = parse_workload(text.removesuffix(" far"))
    inputs = workload.make_inputs(1, "cpu", planted=not text.endswith(" far"))
    if text.endswith(" far"):
        q, k, v, dout, *_ = inputs
        inputs = workload._with_forward(q + 4.0, k - 4.0, v, dout)
    return workload, inputs, References().compute_expected(workload, inputs, seed=1, planted=not text.endswith(" far"))


@pytest.mark.parametrize("case", [*CASES, FAR])
def test_the_source_computes_gradients(case: str, find_wrong: Find) -> None:
    """The kernels' own source, executed without layouts, is within budget, and reads nothing before it has arrived."""
    assert find_wrong(case) == ()


@pytest.mark.parametrize("config", [{"PAIRS": 1}, {"PAIRS": 3}, {"SLOTS": 3}], ids=str)
def test_every_order_and_depth_computes_the_same(config: dict[str, int], find_wrong: Find) -> None:
    """One pair of a sequence and a head at a time, or a number that does not divide theirs; and a buffer more."""
    assert find_wrong(RAGGED, **config) == ()


def test_tiles_of_128_rows_are_right(find_wrong: Find) -> None:
    """dQ is then shared by eight warps along its rows, which four warps' halves of columns are otherwise."""
    assert find_wrong(KEYLESS, BLOCK_M=128) == ()


@pytest.mark.parametrize(("name", "mistake"), MISTAKES.items(), ids=[*MISTAKES])
def test_a_mistake_is_found(name: str, mistake: tuple[str, str, str, str], find_wrong: Find) -> None:
    """A dropped wait, a wrong buffer, a missing mask: the gradients are wrong, or the stand-in refuses the access."""
    assert find_wrong(*mistake), name


@pytest.mark.parametrize(("text", "device", "reason"), [
    ("backward-b1-s64-h2-d128-f16", DeviceInfo("cpu", "cpu-x86_64", "cpu", interpreted=True), "does not run Gluon"),
    ("backward-b1-s64-h2-d128-f16", DeviceInfo("rocm", "gfx950", "mi355x"), "gfx950; use triton.flash_backward"),
    ("backward-b1-s64-h2-d128-f16", DeviceInfo("cuda", "sm_100", "b200"), "a kernel for sm_90, not for sm_100"),
    ("backward-b1-s64-h2-d128-f32", H200, "takes bf16, f16, not f32; use triton.flash_backward"),
    ("backward-b1-s64-h2-d264-f16", H200, "head dimensions to 256, the largest of its tiles, not 264"),
    ("varlen_backward-q64_5-h2-d320-f16", H200, "head dimensions to 256, the largest of its tiles, not 320"),
])  # fmt: skip
def test_what_it_does_not_compute_is_refused(text: str, device: DeviceInfo, reason: str) -> None:
    """In words that name the workload's property, what there is, and what takes it."""
    (found,) = FLASH.unsupported_reasons(parse_workload(text), device)
    assert reason in found


def test_the_launcher_says_what_is_wrong_with_its_arguments() -> None:
    """dtype and head dimension, each with what is allowed; shapes as `triton.flash_backward` checks them."""
    lse = torch.zeros(1, 2, 8)
    f32, narrow = torch.zeros(1, 8, 2, 64), torch.zeros(1, 8, 2, 80, dtype=torch.float16)
    with pytest.raises(
        UsageError, match=r"q is torch\.float32, must be float16 or bfloat16; use triton\.flash_backward"
    ):
        launch.flash_backward(f32, f32, f32, f32, f32, lse, causal=True, config={})
    wide = torch.zeros(1, 8, 2, 257, dtype=torch.float16)
    with pytest.raises(UsageError, match="q is head_dim 257, must be a head_dim of at most 256"):
        launch.flash_backward(wide, wide, wide, wide, wide, lse, causal=True, config={})
    with pytest.raises(UsageError, match="lse is shape"):
        launch.flash_backward(narrow, narrow, narrow, narrow, narrow, lse[0], causal=True, config={})


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_right_on_a_gpu(case: str) -> None:
    """The compiled kernels are within budget on the same problems, where there are some for the device."""
    device = identify_device("cuda")
    workload = parse_workload(case)
    if reasons := FLASH.unsupported_reasons(workload, device):
        pytest.skip(reasons[0])
    assert find_wrong_calls(FLASH, workload, "cuda") == ()


def test_every_head_dimension_has_a_configuration() -> None:
    """The architecture with a kernel has a file of its own, whose tiles are those that the layouts are made for."""
    for head_dim in HEAD_DIMS:
        for causal in (True, False):
            config = SPACE.choose("sm_90", {"head_dim": head_dim, "causal": causal}).config
            assert (config["num_warps"], config["BLOCK_N"]) == (8, 64 if head_dim == 256 else 128)
            assert config["BLOCK_M"] in (64, 128)
    assert SPACE.rules_arch("sm_90") == "sm_90"


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_it_is_built_for_its_architecture_only(kernel: Any) -> None:
    """Every head dimension, dense and packed, under an id of its own; nothing for AMD, and the reason is given."""
    builds = kernel.builds("sm_90")
    assert len({build.id for build in builds}) == len(builds) >= 2 * len(HEAD_DIMS)
    assert kernel.unsupported_reasons("sm_90") == []
    assert kernel.builds("gfx942") == []
    assert kernel.unsupported_reasons("gfx942") == [f"{kernel.name} has a kernel for sm_90, not for gfx942"]
