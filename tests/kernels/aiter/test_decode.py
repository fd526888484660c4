"""aiter's decode against stubs that undo each layout by themselves; nothing of aiter runs here."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernels.aiter import decode, mixed
from kernels.aiter.decode import PARTS
from pytest_attnperf.errors import AttnperfError, UnsupportedError, UsageError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.decode import Decode
from tests.kernels.aiter import paged_stubs
from tests.kernels.aiter.paged_stubs import MI300X, MI355X, RDNA, Stubs, attend, found_wrong

pytest.importorskip("torch")
CK, HIP, ASM, TRITON = (backend for _, _, backend in PARTS)
CUDA = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
PLAIN = "decode-b3-kv90-h16-hk2-d128-page16-f16-ragged"
CASES: tuple[tuple[Any, str], ...] = (
    (CK, PLAIN),
    (CK, "decode-b2-q3-kv150-h4-hk2-d40-page64-cap20-w17-bf16-lse"),
    (CK, "decode-b2-kv2100-h2-d16-page1024-w300-f16-sinks-ragged"),
    (CK, "decode-b2-kv2100-h2-d16-page2048-f16"),
    (CK, "decode-b3-q2-kv70-h4-d64-bf16-sinks-ragged"),
    (CK, "decode-b2-kv70-h4-hk1-d64-cap9-w11-f16-lse"),
    (HIP, PLAIN),
    (HIP, "decode-b2-kv300-h4-d64-page64-bf16"),
    (HIP, "decode-b3-kv90-h4-hk2-d128-page32-f16-kvf8e4m3fnuz-ragged"),
    (HIP, "decode-b2-kv70-h4-hk1-d256-page16-bf16-kvf8e4m3"),
    (ASM, PLAIN),
    (ASM, "decode-b2-kv100-h8-hk1-d128-page16-bf16-kvi8"),
    (ASM, "decode-b3-kv90-h32-hk2-d128-page16-f16-kvf8e4m3fnuz-ragged"),
    (TRITON, PLAIN),
    (TRITON, "decode-b2-kv100-h3-d40-page128-bf16"),
)


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stubs:
    """All four functions, right."""
    found = paged_stubs.install(monkeypatch, tmp_path, "aiter.ops.mha", decode.PA_TRITON_MODULE)
    paged_stubs.batch_prefill(found)
    found.put(decode.ATTENTION, _rocm(found), _asm(found))
    found.put(decode.PA_TRITON_MODULE, _triton(found))
    return found


def _rocm(stubs: Stubs) -> Callable[..., Any]:
    def paged_attention_rocm(
        out: Any, exp_sums: Any, max_logits: Any, tmp_out: Any, query: Any, key_cache: Any, value_cache: Any,
        num_kv_heads: int, scale: float, block_tables: Any, context_lens: Any, block_size: int, max_context_len: int,
        alibi_slopes: Any, kv_cache_dtype: str, k_scale: Any, v_scale: Any, fp8_out_scale: Any = None,
        partition_size: int = 256, mtp: int = 1, q_scale: Any = None,
    ) -> Any:  # fmt: skip
        import torch

        stubs.note("paged_attention_rocm", locals())
        if stubs.lie == "late":
            stubs.modules[decode.ATTENTION].mla_decode_stage1_opus_fwd_ds32()
        parts = -(-max_context_len // partition_size)
        assert exp_sums.shape == max_logits.shape == (*query.shape[:2], parts)
        assert tmp_out.shape == (*query.shape[:2], parts, query.shape[2])
        assert (kv_cache_dtype == "auto") == (key_cache.dtype == query.dtype)
        head_dim, x = query.shape[-1], 16 // key_cache.element_size()
        assert key_cache.shape[1:] == (num_kv_heads, head_dim // x, block_size, x)
        each = torch.arange(head_dim)
        k = key_cache.float()[:, :, each // x, :, each % x].permute(1, 3, 2, 0) * k_scale
        v = torch.stack([value_cache.float()[..., slot] for slot in range(block_size)], dim=1) * v_scale
        _decoded(stubs, out, query, k, v, block_tables, context_lens, scale)
        return out

    return paged_attention_rocm


def _asm(stubs: Stubs) -> Callable[..., Any]:
    def pa_fwd_asm(
        Q: Any, K: Any, V: Any, block_tables: Any, context_lens: Any, block_tables_stride0: int,
        max_qlen: int = 1, K_QScale: Any = None, V_QScale: Any = None, out_: Any = None,
        qo_indptr: Any = None, high_precision: Any = 1, kernelName: Any = None,
    ) -> Any:  # fmt: skip
        import torch

        stubs.note("pa_fwd_asm", locals())
        if stubs.lie == "no kernel":
            raise RuntimeError("get_heuristic_kernel: cannot get heuristic kernel! q_type:fp16 gqa:3")
        assert block_tables_stride0 == block_tables.shape[1]
        assert Q.shape[-1] == 128
        x, page = 16 // K.element_size(), K.shape[3]
        each, slot = torch.arange(128), torch.arange(page)
        k = K.float()[:, :, each // x, :, each % x].permute(1, 3, 2, 0)
        v = V.float()[:, :, slot // x, :, slot % x].permute(1, 0, 2, 3)
        if K_QScale is not None:
            assert K_QScale.shape == V_QScale.shape == (K.shape[0], K.shape[1], page)
            k, v = k * K_QScale.transpose(1, 2)[..., None], v * V_QScale.transpose(1, 2)[..., None]
        _decoded(stubs, out_, Q, k, v, block_tables, context_lens, 128**-0.5)
        return out_

    return pa_fwd_asm


def _triton(stubs: Stubs) -> Callable[..., Any]:
    def paged_attention_decode(
        output: Any, query: Any, key_cache: Any, value_cache: Any, seq_lens: Any, block_tables: Any, attn_scale: float,
        max_seq_len: int, compute_type: Any, k_scale: Any, v_scale: Any, num_seq_partitions: int = 0,
        alibi_slopes: Any = None,
    ) -> None:  # fmt: skip
        import torch

        stubs.note("paged_attention_decode", locals())
        assert (k_scale.item(), v_scale.item(), k_scale.device.type) == (1.0, 1.0, "cpu")
        assert str(compute_type) == {"torch.float16": "fp16", "torch.bfloat16": "bf16"}[str(query.dtype)]
        k, v = (torch.stack(list(cache.unbind(1)), dim=2) for cache in (key_cache, value_cache))
        _decoded(stubs, output, query, k, v, block_tables, seq_lens, attn_scale)

    return paged_attention_decode


def _decoded(
    stubs: Stubs, out: Any, q: Any, k: Any, v: Any, block_tables: Any, context_lens: Any, scale: float
) -> None:
    """One token per sequence; k and v (pages, page, Hk, D), dequantised."""
    page = k.shape[1]
    for b, length in enumerate(context_lens.tolist()):
        pages = -(-length // page)
        used = block_tables[b, :pages].long()
        seen = stubs.length(pages, page, length - (pages - 1) * page)
        result, _ = attend(q[b : b + 1], k[used].flatten(0, 1)[:seen], v[used].flatten(0, 1)[:seen], scale)
        stubs.write(out, b, result[0])


@pytest.mark.parametrize(("backend", "text"), CASES)
def test_right_from_converted_layouts(stubs: Stubs, backend: Any, text: str) -> None:
    """What a function of aiter's signature computes from the layouts it is given is the workload's result."""
    pytest.importorskip("triton") if backend is TRITON else None
    workload = Decode.parse(text)
    device = MI355X if "kvf8e4m3" in (workload.kv_dtype,) else MI300X
    assert backend.unsupported_reasons(workload, device) == []
    assert found_wrong(backend, workload) == ()


@pytest.mark.parametrize("backend", [CK, HIP, ASM, TRITON])
def test_a_kernel_that_ignores_the_last_page_is_wrong(stubs: Stubs, backend: Any) -> None:
    """Planted keys lie in last pages, too."""
    pytest.importorskip("triton") if backend is TRITON else None
    stubs.lie = "last page"
    assert found_wrong(backend, Decode.parse(PLAIN)) != ()


def test_a_window_that_is_off_by_one_is_wrong(stubs: Stubs) -> None:
    """The window counts a token's own key, aiter's left the keys before it."""
    workload = Decode.parse("decode-b2-kv70-h4-hk2-d32-page16-w17-f16")
    assert found_wrong(CK, workload) == ()
    stubs.lie = "window"
    assert found_wrong(CK, workload) != ()


@pytest.mark.parametrize("backend", [CK, HIP, ASM, TRITON])
def test_a_result_that_is_not_written_whole_is_refused(stubs: Stubs, backend: Any) -> None:
    """Half of the heads left as they were is found when the case is prepared."""
    pytest.importorskip("triton") if backend is TRITON else None
    stubs.lie = "half"
    workload = Decode.parse(PLAIN)
    with pytest.raises(AttnperfError, match="left 3072 of 6144 elements of its result unwritten or NaN"):
        backend.prepare(workload, workload.make_inputs(1, "cpu", planted=False))


@pytest.mark.parametrize("backend", [CK, HIP])
def test_another_path_than_promised_is_refused(stubs: Stubs, backend: Any) -> None:
    """The name of a forced backend says what ran, or nothing is timed."""
    stubs.lie = "late"
    workload = Decode.parse(PLAIN)
    with pytest.raises(AttnperfError, match=f"is to run aiter's {'ck' if backend is CK else 'hip'}, but what ran is:"):
        backend.prepare(workload, workload.make_inputs(1, "cpu", planted=False))


@pytest.mark.parametrize(
    ("backend", "config"),
    [
        (CK, {"path": "ck", "page": "16"}),
        (HIP, {"path": "hip", "partition_size": "256"}),
        (ASM, {"path": "asm", "high_precision": "1"}),
        (TRITON, {"path": "triton"}),
    ],
)
def test_what_ran_is_recorded(stubs: Stubs, backend: Any, config: dict[str, str]) -> None:
    """The version, the path, and what the adapter chose."""
    pytest.importorskip("triton") if backend is TRITON else None
    workload = Decode.parse(PLAIN)
    prepared = backend.prepare(workload, workload.make_inputs(1, "cpu", planted=False))
    entries = {name: value for name, value in prepared.config.items() if not name.startswith("env.")}
    assert entries == {"aiter": "0.1.99", **config}


def test_arguments_are_those_that_the_entry_points_list(stubs: Stubs) -> None:
    """What the contract tests look for in a release is what is passed: a stub without defaults would miss nothing."""
    pytest.importorskip("triton")
    workload = Decode.parse(PLAIN)
    points = {point.function: point for point in (*decode.ENTRY_POINTS, *mixed.ENTRY_POINTS)}
    module = {"paged_attention_rocm": HIP, "pa_fwd_asm": ASM, "paged_attention_decode": TRITON}
    for function, backend in {**module, "mha_batch_prefill_func": CK}.items():
        point = points[function]
        passed: set[str] = set()
        stub = getattr(stubs.modules[point.module], function)

        def recording(*args: Any, _stub: Any = stub, _passed: set[str] = passed, **kwargs: Any) -> Any:
            _passed.update(kwargs)
            return _stub(*args, **kwargs)

        recording.__wrapped__ = stub  # type: ignore[attr-defined]
        stubs.put(point.module, recording, names=(function,))
        backend.prepare(workload, workload.make_inputs(1, "cpu", planted=False))
        assert set(point.needed) <= passed <= {*point.needed, *point.offered}


def test_an_aiter_without_lists_of_last_pages_is_given_single_keys(stubs: Stubs) -> None:
    """v0.1.9 reads pages of one key alone; the same memory is addressed so, which the configuration says."""
    paged_stubs.batch_prefill_v0_1_9(stubs)
    workload = Decode.parse("decode-b3-q2-kv90-h4-hk2-d32-page16-cap9-w20-f16-ragged-lse")
    assert found_wrong(CK, workload) == ()
    prepared = CK.prepare(workload, workload.make_inputs(1, "cpu", planted=False))
    assert prepared.config["page"] == "1"


def test_an_aiter_without_sinks_cannot_have_them(stubs: Stubs) -> None:
    """Sinks that are not taken are never left out."""
    paged_stubs.batch_prefill_v0_1_9(stubs)
    workload = Decode.parse("decode-b2-kv40-h4-d32-page16-f16-sinks")
    with pytest.raises(UnsupportedError, match=re.escape("mha_batch_prefill_func takes no sink_ptr")):
        CK.prepare(workload, workload.make_inputs(1, "cpu", planted=False))


def test_no_kernel_in_the_table_is_unsupported(stubs: Stubs) -> None:
    """What the assembly launcher raises for a shape it has no kernel for is a reason, not a failure."""
    stubs.lie = "no kernel"
    workload = Decode.parse(PLAIN)
    with pytest.raises(UnsupportedError, match=r"pa_fwd_asm has no kernel for this shape \(RuntimeError: get_h"):
        ASM.prepare(workload, workload.make_inputs(1, "cpu", planted=False))


@pytest.mark.parametrize("backend", [CK, HIP, ASM, TRITON])
def test_a_wrong_block_table_is_refused(stubs: Stubs, backend: Any) -> None:
    """An entry beyond the cache is named before anything reads there."""
    workload = Decode.parse("decode-b2-kv40-h8-hk1-d128-page16-f16")
    inputs = workload.make_inputs(1, "cpu", planted=False)
    inputs[3][1, 2] = 99
    with pytest.raises(UsageError, match=r"block_table\[1, 2\] is 99, allowed is 0 to 6"):
        backend.prepare(workload, inputs)
    assert stubs.calls == []


PA, ROCM, TRITON_PA, BATCH = decode.PA_ASM, decode.ROCM, decode.PA_TRITON, mixed.BATCH_PREFILL


@pytest.mark.parametrize(
    ("backend", "text", "device", "reasons"),
    [
        (CK, "b2-kv70-h4-d64-f16", CUDA, ["aiter runs on ROCm devices, this one is cuda (sm_90)"]),
        (CK, "b2-kv70-h4-d64-f32", MI300X, [f"{BATCH} takes bf16, f16, not f32"]),
        (CK, "b2-kv70-h4-d64-f16-kvi8", MI300X, [f"{BATCH} takes keys and values in the dtype of q, not kvi8"]),
        (CK, "b2-kv70-h4-d20-f16", MI300X, [f"{BATCH} takes a head_dim of at most 256 that 8 divides, not 20"]),
        (CK, "b2-kv70-h4-d264-f16", MI300X, [f"{BATCH} takes a head_dim of at most 256 that 8 divides, not 264"]),
        (CK, "b2-kv70-h4-d64-f16-sinks-lse", MI300X, [
            f"{BATCH} does not say whether its log-sum-exp holds the sinks; this workload's does"
        ]),
        (HIP, "b2-kv70-h4-d64-page16-f32", MI300X, [f"{ROCM} takes bf16, f16, not f32"]),
        (HIP, "b2-kv70-h4-d64-f16", MI300X, [f"{ROCM} reads its cache in pages, this workload's is contiguous"]),
        (HIP, "b2-kv70-h4-d64-page16-f16-kvf8e4m3", MI300X, [
            f"{ROCM} takes no kvf8e4m3 cache on gfx942, but kvf8e4m3fnuz"
        ]),
        (HIP, "b2-kv70-h4-d64-page16-f16-kvi8", MI355X, [f"{ROCM} takes no kvi8 cache on gfx950, but kvf8e4m3"]),
        (HIP, "b2-kv70-h4-d80-page16-f16", MI300X, [
            f"{ROCM} takes head_dim 64, 128, 192, 256 with a 16-bit cache, not 80"
        ]),
        (HIP, "b2-kv70-h4-d192-page16-f16-kvf8e4m3fnuz", MI300X, [
            f"{ROCM} takes head_dim 64, 128, 256 with an 8-bit cache, not 192"
        ]),
        (HIP, "b2-kv70-h32-hk1-d64-page16-f16", MI300X, [f"{ROCM} takes up to 16 query heads per K/V head, not 32"]),
        (HIP, "b1-kv65537-h4-d64-page16-f16", MI300X, [
            f"{ROCM} is called for up to 65536 keys per sequence, not 65537"
        ]),
        (HIP, "b2-q2-kv70-h4-d64-page16-cap9-w8-f16-sinks-lse", MI300X, [
            f"{ROCM} is given one token per sequence here, this workload has 2",
            f"{ROCM} takes no soft cap, this workload has one of 9",
            f"{ROCM} takes no sliding window, this workload has one of 8 keys",
            f"{ROCM} takes no sinks, this workload has them",
            f"{ROCM} returns no log-sum-exp",
        ]),
        (HIP, "b2-kv70-h4-d64-page16-f16", RDNA, [
            f"{ROCM} is offered on gfx90a, gfx942, gfx950; on gfx1100 it was not verified"
        ]),
        (ASM, "b2-kv70-h4-d64-page16-f16", MI300X, [f"{PA} takes head_dim 128 alone, not 64"]),
        (ASM, "b2-kv70-h4-d128-page32-f16", MI300X, [f"{PA} has kernels for pages of 16 keys, not 32"]),
        (ASM, "b2-kv70-h32-hk1-d128-page16-f16", MI300X, [f"{PA} takes up to 16 query heads per K/V head, not 32"]),
        (ASM, "b2-kv70-h4-d128-page16-f16-kvf8e4m3", MI300X, [
            f"{PA} takes no kvf8e4m3 cache on gfx942, but kvf8e4m3fnuz"
        ]),
        (ASM, "b2-kv70-h4-d128-f16", MI300X, [f"{PA} reads its cache in pages, this workload's is contiguous"]),
        (ASM, "b2-kv70-h4-d128-page16-f16-kvi8", MI300X, []),
        (ASM, "b2-kv70-h4-d128-page16-f16", RDNA, [
            f"{PA} is offered on gfx942, gfx950; on gfx1100 it was not verified"
        ]),
        (TRITON, "b2-kv70-h4-d64-page16-f16-kvi8", MI300X, [
            f"{TRITON_PA} reads the scale of a tensor on the host in every call, which no captured graph can hold; "
            "this workload's cache is kvi8"
        ]),
        (TRITON, "b2-kv70-h64-hk1-d80-page16-f16", RDNA, []),
        (TRITON, "b2-kv70-h4-d64-f16", CUDA, [
            "aiter runs on ROCm devices, this one is cuda (sm_90)",
            f"{TRITON_PA} reads its cache in pages, this workload's is contiguous",
        ]),
    ],
)  # fmt: skip
def test_each_limit_is_a_reason(stubs: Stubs, backend: Any, text: str, device: DeviceInfo, reasons: list[str]) -> None:
    """What a function does not take is said with the value seen, and nothing else."""
    assert backend.unsupported_reasons(Decode.parse(f"decode-{text}"), device) == reasons


def test_without_composable_kernel(stubs: Stubs, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENABLE_CK=0 refuses what promises CK or assembly; to HIP and Triton it means nothing."""
    monkeypatch.setenv("ENABLE_CK", "0")
    told = [bool(backend.unsupported_reasons(Decode.parse(PLAIN), MI300X)) for backend in (CK, ASM, HIP, TRITON)]
    assert told == [True, True, False, False]


@pytest.mark.parametrize(("text", "causal"), [(PLAIN, False), ("decode-b3-q2-kv70-h4-d64-bf16", True)])
def test_one_token_needs_no_mask(stubs: Stubs, text: str, causal: bool) -> None:
    """It sees all keys: CK's kernels without a mask do that, and are other ones."""
    workload = Decode.parse(text)
    CK.prepare(workload, workload.make_inputs(1, "cpu", planted=False))
    assert [given["causal"] for name, given in stubs.calls if name == "mha_batch_prefill_func"] == [causal]
