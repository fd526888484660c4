"""aiter's attention of serving steps against stubs; nothing of aiter runs here."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernels.aiter import mixed
from kernels.aiter.mixed import PARTS
from pytest_attnperf.errors import AttnperfError, UnsupportedError, UsageError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.mixed import Mixed
from tests.kernels.aiter import paged_stubs
from tests.kernels.aiter.paged_stubs import MI300X, MI355X, RDNA, Stubs, attend, found_wrong

pytest.importorskip("torch")
CK, TRITON = (backend for _, _, backend in PARTS)
CUDA = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
PLAIN = "mixed-q33_2q1s130_q5s33-h4-hk2-d64-page16-f16"
FEATURES = "mixed-2q17_q9s40_3q1s70-h4-hk2-d40-page32-w10-cap20-bf16-sinks"


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stubs:
    """Both functions, right; Triton's in its new place."""
    found = paged_stubs.install(monkeypatch, tmp_path, "aiter.ops.mha", mixed.UNIFIED_MODULE)
    paged_stubs.batch_prefill(found)
    found.put(mixed.UNIFIED_MODULE, _unified(found))
    return found


def _unified(stubs: Stubs) -> Callable[..., Any]:
    def unified_attention(
        q: Any, k: Any, v: Any, out: Any, cu_seqlens_q: Any, max_seqlen_q: int, seqused_k: Any, max_seqlen_k: int,
        softmax_scale: float, causal: bool, window_size: Any, block_table: Any, softcap: float, q_descale: Any,
        k_descale: Any, v_descale: Any, q_scales: Any = None, alibi_slopes: Any = None, output_scale: Any = None,
        qq_bias: Any = None, sinks: Any = None, shuffled_kv_cache: bool = False, skip_reduce: bool = False,
    ) -> Any:  # fmt: skip
        stubs.note("unified_attention", locals())
        assert causal
        assert q_descale is None
        starts, page = cu_seqlens_q.tolist(), k.shape[1]
        scales = (k_descale, v_descale)
        left = window_size[0] + (stubs.lie == "window")
        for b, keys in enumerate(seqused_k.tolist()):
            pages = -(-keys // page)
            used, length = block_table[b, :pages].long(), stubs.length(pages, page, keys - (pages - 1) * page)
            read = [cache.float()[used].flatten(0, 1)[:length] for cache in (k, v)]
            keys_read, values_read = (
                one if scale is None else one * scale for one, scale in zip(read, scales, strict=True)
            )
            rows = slice(starts[b], starts[b + 1])
            result, _ = attend(q[rows], keys_read, values_read, softmax_scale, left=left, cap=softcap, sinks=sinks)
            stubs.write(out, rows, result)
        return out

    return unified_attention


@pytest.mark.parametrize(
    ("backend", "text"),
    [
        (CK, PLAIN),
        (CK, FEATURES),
        (CK, "mixed-3q1s70_q1s5-h4-hk1-d16-page128-w30-bf16-sinks"),
        (TRITON, PLAIN),
        (TRITON, FEATURES),
        (TRITON, "mixed-q33_2q1s130-h3-hk1-d64-page64-bf16-kvf8e4m3"),
    ],
)
def test_right(stubs: Stubs, backend: Any, text: str) -> None:
    """Prompts, chunks and single tokens, with every feature, from what aiter's signature is given."""
    workload = Mixed.parse(text)
    assert backend.unsupported_reasons(workload, MI355X) == []
    assert found_wrong(backend, workload) == ()


@pytest.mark.parametrize("lie", ["last page", "window"])
@pytest.mark.parametrize("backend", [CK, TRITON])
def test_mistakes_are_seen(stubs: Stubs, backend: Any, lie: str) -> None:
    """A last page that is ignored, and a window one key too long, are wrong under planted keys."""
    stubs.lie = lie
    assert found_wrong(backend, Mixed.parse(FEATURES)) != ()


@pytest.mark.parametrize("backend", [CK, TRITON])
def test_a_result_that_is_not_written_whole_is_refused(stubs: Stubs, backend: Any) -> None:
    """Half of the heads left as they were is found when the case is prepared."""
    stubs.lie = "half"
    workload = Mixed.parse(PLAIN)
    with pytest.raises(AttnperfError, match="left 5120 of 10240 elements of its result unwritten or NaN"):
        backend.prepare(workload, workload.make_inputs(1, "cpu", planted=False))


def test_another_path_than_promised_is_refused(stubs: Stubs) -> None:
    """A release that sends batch prefill elsewhere is not timed as Composable Kernel."""
    stubs.lie = "late"
    workload = Mixed.parse(PLAIN)
    with pytest.raises(AttnperfError, match="is to run aiter's ck, but what ran is: opus"):
        CK.prepare(workload, workload.make_inputs(1, "cpu", planted=False))


def test_the_old_place_of_the_triton_function(stubs: Stubs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """v0.1.9 has it one folder higher."""
    old = paged_stubs.install(monkeypatch, tmp_path / "old", mixed.UNIFIED_OLD)
    old.put(mixed.UNIFIED_OLD, _unified(old))
    assert found_wrong(TRITON, Mixed.parse(PLAIN)) == ()
    assert [name for name, _ in old.calls] == ["unified_attention"] * 2
    assert stubs.calls == []


def test_what_ran_is_recorded(stubs: Stubs) -> None:
    """The version, the path, and the size of pages that were addressed."""
    workload = Mixed.parse("mixed-q33_2q1s130-h4-d64-page128-f16")
    for backend, config in ((CK, {"path": "ck", "page": "16"}), (TRITON, {"path": "triton"})):
        prepared = backend.prepare(workload, workload.make_inputs(1, "cpu", planted=False))
        entries = {name: value for name, value in prepared.config.items() if not name.startswith("env.")}
        assert entries == {"aiter": "0.1.99", **config}


def test_an_aiter_without_last_pages_and_sinks(stubs: Stubs) -> None:
    """v0.1.9 is given pages of one key, and cannot be given sinks."""
    paged_stubs.batch_prefill_v0_1_9(stubs)
    assert found_wrong(CK, Mixed.parse(PLAIN)) == ()
    workload = Mixed.parse(FEATURES)
    with pytest.raises(UnsupportedError, match=re.escape("mha_batch_prefill_func takes no sink_ptr")):
        CK.prepare(workload, workload.make_inputs(1, "cpu", planted=False))


def test_an_aiter_that_lacks_the_function(stubs: Stubs) -> None:
    """The version, and what it does not have."""
    del stubs.modules[mixed.UNIFIED_MODULE].unified_attention
    workload = Mixed.parse(PLAIN)
    with pytest.raises(UnsupportedError, match=re.escape(f"aiter 0.1.99 has no {mixed.UNIFIED_MODULE}.unified_")):
        TRITON.prepare(workload, workload.make_inputs(1, "cpu", planted=False))


def test_arguments_are_those_that_the_entry_points_list(stubs: Stubs) -> None:
    """What the contract tests look for in a release is what is passed."""
    workload = Mixed.parse(FEATURES)
    for point, backend in zip(mixed.ENTRY_POINTS, (CK, TRITON), strict=True):
        passed = stubs.record_keywords(point.module, point.function)
        backend.prepare(workload, workload.make_inputs(1, "cpu", planted=False))
        assert passed == {*point.needed, *point.offered}


@pytest.mark.parametrize("backend", [CK, TRITON])
def test_a_wrong_block_table_is_refused(stubs: Stubs, backend: Any) -> None:
    """A page that does not exist is named by its entry."""
    workload = Mixed.parse("mixed-q5_q1s20-h2-d16-page16-f16")
    inputs = workload.make_inputs(1, "cpu", planted=False)
    inputs[3][1, 1] = -1
    with pytest.raises(UsageError, match=re.escape("block_table[1, 1] is -1, allowed is 0 to 3")):
        backend.prepare(workload, inputs)


BATCH, UNIFIED = mixed.BATCH_PREFILL, mixed.UNIFIED


@pytest.mark.parametrize(
    ("backend", "text", "device", "reasons"),
    [
        (CK, "q5-h2-d64-page16-f16", MI300X, []),
        (CK, "q5-h2-d64-page16-f16-kvi8", MI300X, [f"{BATCH} takes keys and values in the dtype of q, not kvi8"]),
        (CK, "q5-h2-d36-page16-f16", MI300X, [f"{BATCH} takes a head_dim of at most 256 that 8 divides, not 36"]),
        (CK, "q5-h2-d512-page16-f16", MI300X, [f"{BATCH} takes a head_dim of at most 256 that 8 divides, not 512"]),
        (CK, "q5-h2-d64-page16-f16", CUDA, ["aiter runs on ROCm devices, this one is cuda (sm_90)"]),
        (CK, "q5-h2-d64-page16-f16", RDNA, [
            f"{BATCH} is offered on gfx90a, gfx942, gfx950; on gfx1100 it was not verified"
        ]),
        (TRITON, "q5-h2-d36-page16-f16", RDNA, []),
        (TRITON, "q5-h2-d64-page16-f16", CUDA, ["aiter runs on ROCm devices, this one is cuda (sm_90)"]),
        (TRITON, "q5-h2-d64-page32-f16-kvf8e4m3", MI300X, [
            f"{UNIFIED} takes no kvf8e4m3 cache on gfx942, but kvf8e4m3fnuz"
        ]),
        (TRITON, "q5-h2-d64-page32-f16-kvi8", RDNA, [f"{UNIFIED} takes no kvi8 cache on gfx1100"]),
        (TRITON, "q5-h2-d64-page16-f16-kvf8e4m3", MI355X, [
            f"{UNIFIED} is tested on 8-bit caches with pages of at least 32 keys, not 16"
        ]),
    ],
)  # fmt: skip
def test_each_limit_is_a_reason(stubs: Stubs, backend: Any, text: str, device: DeviceInfo, reasons: list[str]) -> None:
    """What a function does not take is said with the value seen, and nothing else."""
    assert backend.unsupported_reasons(Mixed.parse(f"mixed-{text}"), device) == reasons


def test_without_composable_kernel(stubs: Stubs, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENABLE_CK=0 refuses what promises it, and only that."""
    monkeypatch.setenv("ENABLE_CK", "0")
    workload = Mixed.parse(PLAIN)
    assert ["ENABLE_CK=0" in reason for reason in CK.unsupported_reasons(workload, MI300X)] == [True]
    assert TRITON.unsupported_reasons(workload, MI300X) == []
