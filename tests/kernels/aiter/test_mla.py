"""aiter's latent attention against stubs that read its cache by lists of keys; nothing of aiter runs here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernels.aiter import mla, package
from kernels.aiter.mla import PARTS
from kernels.layer.mla_layers import mla_layer_over
from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.mla import Mla
from pytest_attnperf.workloads.mla_block import MlaBlock
from tests.kernels.aiter import paged_stubs
from tests.kernels.aiter.paged_stubs import MI300X, RDNA, Stubs, attend, found_wrong

pytest.importorskip("torch")
ASM, TRITON = (backend for _, _, backend in PARTS)
CUDA = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
PLAIN = "mla-b2-s1-kv37-h16-d32-r64-c512-bf16"


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stubs:
    """Both functions, right."""
    found = paged_stubs.install(monkeypatch, tmp_path, "aiter.mla", mla.TRITON_MODULE)
    found.low_level("aiter.ops.attention", "mla_decode_stage1_asm_fwd")
    found.put("aiter.mla", _asm(found))
    found.put(mla.TRITON_MODULE, _triton(found))
    return found


def _asm(stubs: Stubs) -> Callable[..., Any]:
    def mla_decode_fwd(
        q: Any, kv_buffer: Any, o: Any, qo_indptr: Any, kv_indptr: Any, kv_indices: Any, kv_last_page_lens: Any,
        max_seqlen_q: int, page_size: int = 1, nhead_kv: int = 1, sm_scale: Any = None, logit_cap: float = 0.0,
        num_kv_splits: Any = None, work_meta_data: Any = None, return_lse: bool = False, causal: bool = True,
    ) -> Any:  # fmt: skip
        stubs.note("mla_decode_fwd", locals())
        stubs.ran("aiter.ops.attention", "mla_decode_stage1_asm_fwd")
        assert q.is_contiguous()
        assert kv_buffer.shape[1:] == (1, 1, 576)
        assert kv_last_page_lens.tolist() == [1] * (len(qo_indptr) - 1)
        assert causal
        _decoded(stubs, q, kv_buffer[:, 0], kv_buffer[:, 0, :, :512], o, qo_indptr, kv_indptr, kv_indices, sm_scale)

    return mla_decode_fwd


def _triton(stubs: Stubs) -> Callable[..., Any]:
    def decode_attention_fwd_grouped_rope(
        q: Any, k_buffer: Any, v_buffer: Any, o: Any, kv_indptr: Any, kv_indices: Any, k_pe_tokens: Any,
        kv_lora_rank: int, rotary_dim: int, cos_sin_cache: Any, positions: Any, attn_logits: Any, num_kv_splits: int,
        sm_scale: float, logit_cap: Any = 0.0, use_rope: Any = False, is_neox_style: Any = False, config: Any = None,
    ) -> Any:  # fmt: skip
        import torch

        stubs.note("decode_attention_fwd_grouped_rope", locals())
        assert not use_rope
        assert not logit_cap
        assert attn_logits.shape == (*q.shape[:2], num_kv_splits, kv_lora_rank + 1)
        assert k_buffer.stride(2) == v_buffer.stride(2) == 1
        each = torch.arange(len(q) + 1)
        _decoded(stubs, q, k_buffer, v_buffer, o, each, kv_indptr, kv_indices, sm_scale)

    return decode_attention_fwd_grouped_rope


def _decoded(
    stubs: Stubs, q: Any, k: Any, v: Any, o: Any, qo_indptr: Any, kv_indptr: Any, kv_indices: Any, scale: float
) -> None:
    """k (keys, 1, 576), v (keys, 1, 512)."""
    starts, firsts = qo_indptr.tolist(), kv_indptr.tolist()
    for b in range(len(starts) - 1):
        used = kv_indices[firsts[b] : firsts[b + 1] - (stubs.lie == "last page")].long()
        rows = slice(starts[b], starts[b + 1])
        result, _ = attend(q[rows], k[used], v[used], scale)
        stubs.write(o, rows, result)


@pytest.mark.parametrize(
    ("backend", "text"),
    [
        (ASM, PLAIN),
        (ASM, "mla-b2-s3-kv40-h16-d32-dv48-r64-c512-bf16-causal"),
        (TRITON, PLAIN),
        (TRITON, "mla-b3-s1-kv40-h6-d32-dv16-r16-c96-f16-causal"),
    ],
)
def test_right(stubs: Stubs, backend: Any, text: str) -> None:
    """With both products around it, what the function leaves in latent rows is the workload's result."""
    workload = Mla.parse(text)
    assert backend.unsupported_reasons(workload, MI300X) == []
    assert found_wrong(backend, workload) == ()


BLOCK = "mla_block-b2-s1-p36-room48-e64-h16-q48-d32-r64-c512-bf16-fp8w"


@pytest.mark.parametrize(
    ("backend", "text"),
    [
        (ASM, BLOCK),
        (ASM, "mla_block-b1-s3-p20-e64-h16-d32-dv48-r64-c512-bf16"),
        (TRITON, BLOCK),
        (TRITON, "mla_block-b3-s1-p20-room30-e64-h6-q48-d32-dv16-r16-c96-f16"),
    ],
)
def test_a_layer_over_it_is_right(stubs: Stubs, backend: Any, text: str) -> None:
    """With projections, norms, rotation and two growing caches around it, which are joined in the call; one that
    ignores the last key, which the call itself has written, is wrong."""
    layer, block = mla_layer_over(backend), MlaBlock.parse(text)
    assert layer.unsupported_reasons(block, MI300X) == []
    assert found_wrong(layer, block) == ()
    prepared = layer.prepare(block, block.make_inputs(1, "cpu", planted=False))
    assert prepared.config["copied_for_attention"] == "kv_cache, pe_cache"
    stubs.lie = "last page"
    assert found_wrong(layer, block) != ()


def test_a_layer_over_it_says_what_it_lacks(stubs: Stubs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mask, caches of heads, prompts, and, where it is not installed, aiter itself."""
    layer = mla_layer_over(TRITON)
    prompt = MlaBlock.parse("mla_block-b1-s3-e64-h16-d32-r64-c512-bf16-mask")
    mask, tokens = layer.unsupported_reasons(prompt, MI300X)
    assert mask.startswith("aiter.triton has a causal mask or none")
    assert tokens == "aiter's decode_attention_fwd_grouped_rope takes one token per sequence, not 3"
    (heads,) = layer.unsupported_reasons(MlaBlock.parse(f"{BLOCK}-expanded"), MI300X)
    assert heads.startswith("aiter.triton attends over cached latents")
    monkeypatch.setattr(package, "_find_folders", lambda: ([], None))
    (reason,) = layer.unsupported_reasons(MlaBlock.parse(BLOCK), MI300X)
    assert "aiter" in reason


@pytest.mark.parametrize("backend", [ASM, TRITON])
def test_a_kernel_that_ignores_the_last_key_is_wrong(stubs: Stubs, backend: Any) -> None:
    """Pages hold one key here, so the last one is a single key."""
    stubs.lie = "last page"
    assert found_wrong(backend, Mla.parse(PLAIN)) != ()


@pytest.mark.parametrize("backend", [ASM, TRITON])
def test_a_result_that_is_not_written_whole_is_refused(stubs: Stubs, backend: Any) -> None:
    """The latent rows are looked at, before the last product could hide what was not written."""
    stubs.lie = "half"
    workload = Mla.parse(PLAIN)
    with pytest.raises(AttnperfError, match="left 8192 of 16384 elements of its result unwritten or NaN"):
        backend.prepare(workload, workload.make_inputs(1, "cpu", planted=False))


def test_another_path_than_promised_is_refused(stubs: Stubs) -> None:
    """OPUS is not timed as assembly."""
    stubs.lie = "late"
    workload = Mla.parse(PLAIN)
    with pytest.raises(AttnperfError, match="is to run aiter's asm, but what ran is: opus"):
        ASM.prepare(workload, workload.make_inputs(1, "cpu", planted=False))


def test_what_ran_is_recorded(stubs: Stubs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path, that the products around the kernel are timed, and variables that route the call."""
    monkeypatch.setenv("AITER_MLA_USE_OPUS", "1")
    workload = Mla.parse(PLAIN)
    timed = {"form": "absorb", "projections": "torch.bmm, timed"}
    for backend, config in (
        (ASM, {"path": "asm", "mode": "not persistent", "page": "1"}),
        (TRITON, {"path": "triton", "num_kv_splits": "16, in fp32"}),
    ):
        prepared = backend.prepare(workload, workload.make_inputs(1, "cpu", planted=False))
        assert prepared.config.items() >= {"env.AITER_MLA_USE_OPUS": "1", **timed, **config}.items()


def test_an_aiter_that_reads_the_page_size_from_the_cache(stubs: Stubs) -> None:
    """v0.1.9 takes no page_size, no nhead_kv and no causal."""
    whole = stubs.modules["aiter.mla"].mla_decode_fwd

    def mla_decode_fwd(
        q: Any, kv_buffer: Any, o: Any, qo_indptr: Any, kv_indptr: Any, kv_indices: Any, kv_last_page_lens: Any,
        max_seqlen_q: int, sm_scale: Any = None, logit_cap: float = 0.0, return_lse: bool = False,
    ) -> Any:  # fmt: skip
        given = (q, kv_buffer, o, qo_indptr, kv_indptr, kv_indices, kv_last_page_lens, max_seqlen_q)
        whole(*given, sm_scale=sm_scale)

    stubs.put("aiter.mla", mla_decode_fwd)
    assert found_wrong(ASM, Mla.parse(PLAIN)) == ()


def test_arguments_are_those_that_the_entry_points_list(stubs: Stubs) -> None:
    """What the contract tests look for in a release is what is passed."""
    workload = Mla.parse(PLAIN)
    for point, backend in zip(mla.ENTRY_POINTS, (ASM, TRITON), strict=True):
        passed = stubs.record_keywords(point.module, point.function)
        backend.prepare(workload, workload.make_inputs(1, "cpu", planted=False))
        assert passed == {*point.needed, *point.offered}


ASM_NAME, TRITON_NAME = mla.MLA_ASM, mla.MLA_TRITON


@pytest.mark.parametrize(
    ("backend", "text", "device", "reasons"),
    [
        (ASM, "b2-s1-kv37-h16-d32-r64-c512-bf16", CUDA, ["aiter runs on ROCm devices, this one is cuda (sm_90)"]),
        (ASM, "b2-s1-kv37-h16-d32-r64-c512-bf16", RDNA, [
            f"{ASM_NAME} is offered on gfx942, gfx950; on gfx1100 it was not verified"
        ]),
        (ASM, "b2-s1-kv37-h16-d32-r64-c512-f16", MI300X, [f"{ASM_NAME} takes bf16, not f16"]),
        (ASM, "b2-s1-kv37-h16-d32-r32-c256-bf16", MI300X, [
            f"{ASM_NAME} takes latent_dim 512 and rope_dim 64, not 256 and 32"
        ]),
        (ASM, "b2-s4-kv37-h128-d32-r64-c512-bf16-causal", MI300X, []),
        (ASM, "b2-s1-kv37-h24-d32-r64-c512-bf16", MI300X, [f"{ASM_NAME} is offered with 16 or 128 heads, not 24"]),
        (ASM, "b2-s5-kv37-h16-d32-r64-c512-bf16-causal", MI300X, [
            f"{ASM_NAME} takes up to 4 tokens per sequence, not 5"
        ]),
        (ASM, "b2-s2-kv37-h16-d32-r64-c512-bf16", MI300X, [
            f"{ASM_NAME} masks causally, and this workload's 2 tokens see all keys"
        ]),
        (ASM, "b2-s1-kv37-h16-d32-r64-c512-bf16-lse", MI300X, [
            f"{ASM_NAME} leaves its log-sum-exp unwritten where it takes one split of the keys"
        ]),
        (TRITON, "b2-s1-kv37-h16-d32-r64-c512-f32", MI300X, [f"{TRITON_NAME} is offered for bf16, f16, not f32"]),
        (TRITON, "b2-s2-kv37-h16-d32-r64-c512-f16-causal", MI300X, [
            f"{TRITON_NAME} takes one token per sequence, not 2"
        ]),
        (TRITON, "b2-s1-kv37-h16-d32-r64-c512-f16-lse", MI300X, [f"{TRITON_NAME} returns no log-sum-exp"]),
        (TRITON, "b2-s1-kv37-h24-d32-r32-c256-f16", RDNA, []),
    ],
)  # fmt: skip
def test_each_limit_is_a_reason(stubs: Stubs, backend: Any, text: str, device: DeviceInfo, reasons: list[str]) -> None:
    """What a function does not take is said with the value seen, and nothing else."""
    assert backend.unsupported_reasons(Mla.parse(f"mla-{text}"), device) == reasons
