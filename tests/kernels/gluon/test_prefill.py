"""The source of `gluon.flash` computes attention, mistakes in it are found, and what it does not compute is refused."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from kernels.gluon import devices
from kernels.gluon.prefill.backend import BACKENDS
from kernels.gluon.prefill.launch import choose_launcher, prefill_forward
from kernels.gluon.prefill.space import HEAD_DIMS, SINCE, SPACE
from pytest_attnperf.environment.device import identify_device
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.families import parse_workload
from tests.kernels.judging import find_wrong_calls

torch = pytest.importorskip("torch")
FLASH = BACKENDS[0]
H200 = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
MI355X = DeviceInfo(kind="rocm", arch="gfx950", product="mi355x")

CASES = (
    "prefill-b1-s70-kv333-h4-hk2-d128-bf16-causal-lse",
    "prefill-b1-s130-kv257-h2-d64-f16-lse",
    "prefill-b1-s140-kv77-h2-hk1-d64-bf16-causal-lse",
    "prefill-b1-s128-h2-d128-f16-causal",
    "prefill-b2-s1-kv97-h4-hk1-d256-f16-causal-lse",
    "prefill-b1-s129-kv128-h3-hk1-d64-bf16-causal-lse",
    "prefill-b3-s70-kv31-h4-hk2-d128-f16",
    "prefill-b1-s200-kv1-h1-d128-f16-causal-lse",
    "prefill-b1-s65-kv160-h1-d256-bf16-causal",
    "prefill-b8-s40-kv72-h2-hk1-d64-bf16-causal",
)
PADDED_CASES = (
    "prefill-b1-s200-kv140-h2-hk1-d40-f16-causal-lse",
    "prefill-b2-s130-kv257-h2-d72-bf16",
    "prefill-b1-s70-kv333-h2-hk1-d59-bf16-causal-lse",
    "prefill-b1-s70-kv133-h1-d160-f16-causal",
    "prefill-b1-s70-kv133-h2-d127-f16-lse",
)
"""Each head dimension, dtype and mask; grouped heads; lengths around tiles of 32 to 128 keys and 64 to 128 rows; rows
that see no key; numbers of heads that 8 XCDs divide and do not. Then head dimensions of no tile."""

RAGGED, KEYLESS, SEVERAL = CASES[0], CASES[2], CASES[6]

MISTAKES = {
    "K is not awaited": (RAGGED, "async_copy.wait_group(1)", "async_copy.wait_group(2)"),
    "V is not awaited": (
        RAGGED,
        "async_copy.wait_group(0)\n        copy_tile(k_buffer, k_base",
        "async_copy.wait_group(1)\n        copy_tile(k_buffer, k_base",
    ),
    "V of the other buffer": (RAGGED, "v_buffers.index(slot)", "v_buffers.index(1 - slot)"),
    "the next V over this one": (RAGGED, "copy_tile(v_buffers.index(1 - slot)", "copy_tile(v_buffers.index(slot)"),
    "K and V come in the other order": (
        RAGGED,
        "    copy_tile(k_buffer, k_ptr + first_key, 0, offsets, columns, stride, seq_kv)\n"
        "    copy_tile(v_buffers.index(0), v_ptr + first_key, 0, offsets, columns, stride, seq_kv)\n",
        "    copy_tile(v_buffers.index(0), v_ptr + first_key, 0, offsets, columns, stride, seq_kv)\n"
        "    copy_tile(k_buffer, k_ptr + first_key, 0, offsets, columns, stride, seq_kv)\n",
    ),
    "no group is committed": (RAGGED, "    gl.amd.cdna4.async_copy.commit_group()\n", ""),
    "the last copies are not awaited": (RAGGED, "async_copy.wait_group(0)  #", "async_copy.wait_group(2)  #"),
    "copies behind the last tile": (RAGGED, "gl.minimum(start_n + BLOCK_N, last)", "start_n + BLOCK_N"),
    "copies behind the last key": (
        RAGGED,
        "    inside = gl.minimum(offsets, (seq_kv - 1 - start_n) * stride + columns)",
        "    inside = offsets",
    ),
    "a key too many": (RAGGED, "rows + (1 + seq_kv", "rows + (2 + seq_kv"),
    "the causal edge without a mask": (RAGGED, "start_m + 1 + seq_kv", "start_m + BLOCK_M + seq_kv"),
    "the last tile without a mask": (CASES[1], "whole_to = seq_kv // BLOCK_N", "whole_to = (seq_kv + 127) // BLOCK_N"),
    "the sum is not rescaled": (RAGGED, "l_i * rescale +", "l_i +"),
    "acc is not rescaled": (RAGGED, "acc * rescale[:, None]", "acc"),
    "powers of e": (RAGGED, "math.log2(math.e) / math.sqrt", "1.0 / math.sqrt"),
    "every query head has its own K": (RAGGED, "head // (heads // kv_heads)", "head % kv_heads"),
    "rows without keys shift by -inf": (KEYLESS, 'gl.where(m_new == float("-inf"), 0.0, m_new)', "m_new"),
    "rows without keys divide by 0": (KEYLESS, "gl.where(l_i == 0.0, 1.0, l_i)", "l_i"),
    "q behind the last row": (RAGGED, ", seq_q - 1 - start_m)", ", BLOCK_M)"),
    "out behind the last row": (RAGGED, "mask=(rows < seq_q)[:, None]", "mask=(rows >= 0)[:, None]"),
    "a log-sum-exp in bits": (RAGGED, " * LN_2\n", "\n"),
    "heads of one XCD only": (CASES[9], " + gl.program_id(0) // XCDS\n", "\n"),
}


HOPPER_MISTAKES = {
    "K is not awaited": (
        RAGGED,
        "        gl.nvidia.hopper.mbarrier.wait(k_ready.index(slot), use // SLOTS & 1)\n        k, v =",
        "        k, v =",
    ),
    "V is not awaited": (
        RAGGED,
        "        gl.nvidia.hopper.mbarrier.wait(v_ready.index(slot), use // SLOTS & 1)\n        acc =",
        "        acc =",
    ),
    "K is awaited a phase early": (
        RAGGED,
        "k_ready.index(slot), use // SLOTS & 1)\n        k,",
        "k_ready.index(slot), 1)\n        k,",
    ),
    "the buffer of K need not be free": (
        RAGGED,
        "            gl.nvidia.hopper.mbarrier.wait(k_free.index(slot), phase)\n",
        "",
    ),
    "the buffer of V need not be free": (
        RAGGED,
        "            gl.nvidia.hopper.mbarrier.wait(v_free.index(slot), phase)\n",
        "",
    ),
    "the next Q over this one": (
        SEVERAL,
        "        gl.nvidia.hopper.mbarrier.wait(q_free.index(0), (turn & 1) ^ 1)\n",
        "",
    ),
    "Q of the block before": (SEVERAL, "wait(q_ready.index(0), turn & 1)", "wait(q_ready.index(0), (turn + 1) & 1)"),
    "no buffer is free at first": (RAGGED, "phase = (use // SLOTS & 1) ^ 1", "phase = use // SLOTS & 1"),
    "K is freed before it was read": (
        RAGGED,
        "        s = gl.nvidia.hopper.warpgroup_mma_wait(1 if GROUPS == 2 else 0, deps=[s])\n"
        "        gl.nvidia.hopper.mbarrier.arrive(k_free.index(slot), count=1)\n",
        "        gl.nvidia.hopper.mbarrier.arrive(k_free.index(slot), count=1)\n"
        "        gl.nvidia.hopper.mbarrier.wait(k_ready.index(before), (use + 1) // SLOTS & 1)\n"
        "        s = gl.nvidia.hopper.warpgroup_mma_wait(1 if GROUPS == 2 else 0, deps=[s])\n",
    ),
    "V is never freed": (RAGGED, "        gl.nvidia.hopper.mbarrier.arrive(v_free.index(before), count=1)\n", ""),
    "a turn is never passed": (
        RAGGED,
        "    gl.nvidia.hopper.mbarrier.arrive(turns.index((GROUP + 1) % GROUPS), count=1)\n",
        "",
    ),
    "the products are not awaited": (RAGGED, "1 if GROUPS == 2 else 0", "2"),
    "both groups take the first rows": (RAGGED, "start_m += GROUP * ROWS", "start_m += 0 * ROWS"),
    "bytes of Q of one group": (RAGGED, "expect(q_ready.index(0), GROUPS * ROWS", "expect(q_ready.index(0), ROWS"),
    "one group frees for all": (
        RAGGED,
        "v_ready, v_free = make_barriers(SLOTS, 1), make_barriers(SLOTS, GROUPS)",
        "v_ready, v_free = make_barriers(SLOTS, 1), make_barriers(SLOTS, 1)",
    ),
    "the result over the one that is stored": (
        SEVERAL,
        "        gl.nvidia.hopper.tma.store_wait(0)  # the result of the block before has left\n",
        "",
    ),
    "no fence before the store": (
        RAGGED,
        "        gl.nvidia.hopper.fence_async_shared()\n        store_by",
        "        store_by",
    ),
    "the first block again": (SEVERAL, "gl.load(schedule_ptr + turn)", "gl.load(schedule_ptr)"),
    "a key too many": (RAGGED, "rows + (1 + seq_kv", "rows + (2 + seq_kv"),
    "the last V is left out": (
        RAGGED,
        "    acc = gl.nvidia.hopper.warpgroup_mma(p, as_matrix(v_smem.index(last)), acc)\n",
        "",
    ),
    "no tile for rows without keys": (CASES[7], "gl.maximum(stop, 1) +", "stop +"),
    "rows without keys shift by -inf": (KEYLESS, 'gl.where(m_new == float("-inf"), 0.0, m_new)', "m_new"),
    "acc is not rescaled": (RAGGED, "acc * gl.convert_layout(rescale", "acc * gl.convert_layout(1.0 + 0.0 * rescale"),
    "the sums are not rescaled": (RAGGED, "l_8 * of_8[:, None] +", "l_8 +"),
    "the last tile without a mask": (CASES[1], "whole = seq_kv // BLOCK_N", "whole = (seq_kv + 127) // BLOCK_N"),
    "the log-sum-exp behind the last row": (RAGGED, "lse, mask=rows < seq_q)", "lse, mask=rows >= 0)"),
}

EVERY_MISTAKE = [
    *(("gfx950", name, *mistake) for name, mistake in MISTAKES.items()),
    *(("sm_90", name, *mistake) for name, mistake in HOPPER_MISTAKES.items()),
]


@pytest.mark.parametrize(("case", "arch"), [*itertools.product([*CASES, *PADDED_CASES], SINCE)])
def test_the_source_computes_attention(case: str, arch: str, find_wrong: Any) -> None:
    """The kernel's own source, executed without layouts, is within budget, and reads nothing before it has arrived."""
    assert find_wrong(arch, case) == ()


@pytest.mark.parametrize(("arch", "name", "case", "right", "wrong"), EVERY_MISTAKE)
def test_a_mistake_is_found(arch: str, name: str, case: str, right: str, wrong: str, find_wrong: Any) -> None:
    """A dropped wait, a wrong buffer, a missing mask: the outputs are wrong, or the stand-in refuses the access."""
    assert find_wrong(arch, case, right, wrong), name


@pytest.mark.parametrize(("text", "device", "reason"), [
    ("prefill-b1-s64-h2-d128-f16", DeviceInfo("cpu", "cpu-x86_64", "cpu", interpreted=True), "does not run Gluon"),
    ("prefill-b1-s64-h2-d128-f16", DeviceInfo("rocm", "gfx942", "mi300x"), "not for gfx942; use triton.flash"),
    ("prefill-b1-s64-h2-d128-f16", DeviceInfo("rocm", "gfx1201", "rx9070"), "not for gfx1201"),
    ("prefill-b1-s64-h2-d320-f16", MI355X, "takes head dimensions to 256, the largest of its tiles, not 320"),
    ("prefill-b1-s64-h2-d320-f16", H200, "takes head dimensions to 256, the largest of its tiles, not 320"),
    ("prefill-b1-s64-h2-d128-f32", MI355X, "takes bf16, f16, not f32"),
    ("prefill-b1-s64-h2-d128-w8-f16-causal", MI355X, "no sliding window"),
    ("prefill-b1-s64-h2-d128-dv64-f16", MI355X, "one head dimension"),
    ("prefill-b1-s64-h2-d128-f16-alibi", MI355X, "no ALiBi"),
    ("prefill-b1-s64-h2-d128-f16-bias", MI355X, "no bias"),
])  # fmt: skip
def test_what_it_does_not_compute_is_refused(text: str, device: DeviceInfo, reason: str) -> None:
    """In words that name the workload's property, what there is, and what takes it."""
    (found,) = FLASH.unsupported_reasons(parse_workload(text), device)
    assert reason in found


@pytest.mark.parametrize(("version", "reasons"), [("3.7.1", 1), ("3.8.0", 0), ("3.10.0+rocm7", 0), ("", 0)])
def test_an_older_triton_is_refused(version: str, reasons: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """3.7 has no asynchronous copies in linear layouts; a version that cannot be read is left to the compiler."""
    monkeypatch.setattr(devices, "version_of", lambda _name: version)
    found = FLASH.unsupported_reasons(parse_workload("prefill-b1-s64-h2-d128-f16"), MI355X)
    assert [f"gluon.flash needs Triton 3.8 or newer on gfx950; this is {version}; install one"] * reasons == found


def test_the_launcher_says_what_is_wrong_with_its_arguments() -> None:
    """dtype, head dimension and architecture, each with what is allowed."""
    choices: dict[str, Any] = {"arch": "gfx950", "causal": True, "with_lse": False, "config": {}}
    f32, narrow = torch.zeros(1, 8, 2, 64), torch.zeros(1, 8, 2, 80, dtype=torch.float16)
    with pytest.raises(UsageError, match="q, k and v are float32; they must be float16 or bfloat16"):
        prefill_forward(f32, f32, f32, **choices)
    wide = torch.zeros(1, 8, 2, 257, dtype=torch.float16)
    with pytest.raises(UsageError, match="q has head dimension 257; it must be 1 to 256"):
        prefill_forward(wide, wide, wide, **choices)
    with pytest.raises(UsageError, match="q has head dimension 80 and v 64; both must be the same"):
        prefill_forward(narrow, narrow, narrow[..., :64].contiguous(), **choices)
    with pytest.raises(UsageError, match="no Gluon kernel for gfx942; there is one for gfx950, sm_90"):
        choose_launcher("gfx942")


@pytest.mark.gpu
@pytest.mark.parametrize("case", [*CASES, *PADDED_CASES])
def test_right_on_a_gpu(case: str) -> None:
    """The compiled kernel is within budget on the same problems, where there is one for the device."""
    device = identify_device("cuda")
    workload = parse_workload(case)
    if reasons := FLASH.unsupported_reasons(workload, device):
        pytest.skip(reasons[0])
    assert find_wrong_calls(FLASH, workload, "cuda") == ()


@pytest.mark.parametrize("arch", SINCE)
def test_every_head_dimension_has_a_configuration(arch: str) -> None:
    """Every architecture with a kernel has a file of its own."""
    assert SPACE.rules_arch(arch) == arch
    for head_dim in HEAD_DIMS:
        assert SPACE.choose(arch, {"head_dim": head_dim}).config["num_warps"] >= 4
