"""The staged pipeline: right as a whole and kernel by kernel, what it refuses, what it is compiled as."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernels.hip.compiler import load
from kernels.hip.staged import BACKENDS, TILE, kernels_of, matrices_bytes
from kernels.hip.staged_builds import KERNELS
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.prefill import Prefill

(STAGED,) = BACKENDS
H200 = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
ALONE = Prefill.parse("prefill-b2-s37-kv70-h4-hk2-d40-f16-causal-lse")
"""Ragged in every tile: rows, keys and dimensions."""

RUNS = (
    ("gfx942", "prefill-b2-s63-h4-hk2-d40-bf16-causal-lse"),
    ("gfx942", "prefill-b1-s70-kv31-h3-hk1-d64-dv96-f16-causal-lse"),
    ("gfx1100", "prefill-b1-s37-kv101-h2-d128-bf16"),
)
"""Both waves, both kinds of lengths, rows that see no key, no mask, and values of another head dimension."""


@pytest.mark.parametrize(("arch", "text"), RUNS)
def test_right_on_small_problems(
    arch: str, text: str, emulate: Callable[[str], None], judged: Callable[..., tuple[str, ...]]
) -> None:
    """The pipeline is within budget, free of races and within its tensors."""
    emulate(arch)
    assert judged(STAGED, text) == ()


@pytest.mark.gpu
def test_right_on_small_problems_on_a_gpu(problems: tuple[str, ...], judged: Callable[..., tuple[str, ...]]) -> None:
    """The compiled kernels are within budget on every problem of the other backends' tests that they take."""
    taken = [text for text in problems if not STAGED.unsupported_reasons(Prefill.parse(text), H200)]
    assert len(taken) > 20
    for text in [*taken, *(text for _, text in RUNS)]:
        assert judged(STAGED, text, "cuda") == (), text


def run(function: str, grid: tuple[int, int, int], *arguments: Any) -> None:
    """One kernel of ALONE's pipeline, emulated."""
    import torch

    load(kernels_of(ALONE)[function], torch.device("cpu"))(grid, *arguments)


def test_scores_are_scaled_products(emulate: Callable[[str], None]) -> None:
    """qk_scores gives q k^T / sqrt(D) in fp32 for every pair, hidden ones too, with grouped heads."""
    emulate("gfx942")
    import torch

    w = ALONE
    q, k, _ = w.make_inputs(1, "cpu", planted=True)
    scores = torch.full((w.batch, w.heads, w.seq_q, w.seq_kv), float("nan"))
    tiles = -(-w.seq_q // TILE) * -(-w.seq_kv // TILE)
    run("qk_scores", (tiles, w.heads, w.batch), q, k, scores, w.seq_q, w.seq_kv, w.heads, w.kv_heads)
    keys = k.double().repeat_interleave(2, dim=2)
    expected = torch.einsum("bihd,bjhd->bhij", q.double(), keys) / w.head_dim**0.5
    torch.testing.assert_close(scores.double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("seq_q", "seq_kv"), [(3, 5), (5, 3), (2, 300)])
def test_the_mask_is_bottom_right(seq_q: int, seq_kv: int, emulate: Callable[[str], None]) -> None:
    """causal_mask hides key j from row i iff j > i + seq_kv - seq_q, and leaves the other scores as they are."""
    emulate("gfx942")
    import torch

    before = torch.randn(2, 2, seq_q, seq_kv)
    scores = before.clone()
    run("causal_mask", (seq_q, 2, 2), scores, seq_q, seq_kv, 2)
    hidden = torch.arange(seq_kv)[None, :] > torch.arange(seq_q)[:, None] + seq_kv - seq_q
    assert torch.equal(scores, before.masked_fill(hidden, float("-inf")))


def test_softmax_of_rows_and_of_rows_of_nothing(emulate: Callable[[str], None]) -> None:
    """row_softmax gives weights and log-sum-exp for large scores too; a row of -infinity gives 0 and -infinity."""
    emulate("gfx1100")
    import torch

    scores = 200 * torch.randn(1, 2, 3, 300, generator=torch.Generator().manual_seed(1))
    scores[0, 1, 2] = float("-inf")
    scores[0, 0, 1, 7:] = float("-inf")
    weights, lse = torch.full((1, 2, 3, 300), float("nan")).half(), torch.full((1, 2, 3), float("nan"))
    run("row_softmax", (3, 2, 1), scores, weights, lse, 3, 300, 2)
    torch.testing.assert_close(weights.float(), torch.softmax(scores, -1).nan_to_num(0).half().float())
    torch.testing.assert_close(lse, torch.logsumexp(scores, -1))
    assert float(lse[0, 1, 2]) == float("-inf")
    assert not weights[0, 1, 2].any()


def test_values_are_weighted(emulate: Callable[[str], None]) -> None:
    """weighted_values multiplies any weights, of grouped heads and ragged tiles, and rounds once."""
    emulate("gfx942")
    import torch

    w = ALONE
    generator = torch.Generator().manual_seed(1)
    weights = torch.rand(w.batch, w.heads, w.seq_q, w.seq_kv, generator=generator).half()
    v = torch.randn(w.batch, w.seq_kv, w.kv_heads, w.head_dim, generator=generator).half()
    out = torch.full((w.batch, w.seq_q, w.heads, w.head_dim), float("nan")).half()
    tiles = -(-w.seq_q // TILE) * -(-w.head_dim // TILE)
    run("weighted_values", (tiles, w.heads, w.batch), weights, v, out, w.seq_q, w.seq_kv, w.heads, w.kv_heads)
    expected = torch.einsum("bhij,bjhd->bihd", weights.double(), v.double().repeat_interleave(2, dim=2))
    torch.testing.assert_close(out.double(), expected, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("prefill-b1-s64-h2-d44-f16", "hip.staged takes head dimensions that are multiples of 8, not a head_dim of 44"),
        ("prefill-b1-s64-h2-d64-dv20-f16", "not a head_dim_v of 20"),
        ("prefill-b1-s64-h2-d64-f32", "hip.staged takes bf16, f16, not f32"),
        ("prefill-b1-s64-h2-d64-w9-f16-causal", "takes no sliding window"),
        ("prefill-b1-s64-h2-d64-f16-alibi", "takes no ALiBi slopes"),
        ("prefill-b1-s64-h2-d64-f16-bias", "takes no bias matrix"),
        ("prefill-b4-s8192-h32-d64-f16", "keeps all scores and weights, 48.0 GiB here, and takes up to 16 GiB"),
    ],
)
def test_what_it_cannot_do_is_a_reason(text: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each limit is told with the value that is beyond it, and nothing else."""
    monkeypatch.setattr("kernels.hip.staged.missing_hip", lambda device: [])
    (said,) = STAGED.unsupported_reasons(Prefill.parse(text), H200)
    assert reason in said
    assert STAGED.unsupported_reasons(ALONE, H200) == []


def test_a_missing_compiler_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the adapter lacks is passed on."""
    monkeypatch.setattr("kernels.hip.staged.missing_hip", lambda device: ["no compiler"])
    assert STAGED.unsupported_reasons(ALONE, H200) == ["no compiler"]


def test_scores_and_weights_are_counted() -> None:
    """4 and 2 bytes for each pair of each head."""
    assert matrices_bytes(ALONE) == 2 * 4 * 37 * 70 * 6


@pytest.mark.parametrize("causal", [False, True])
def test_the_mask_is_launched_where_there_is_one(causal: bool, emulate: Callable[[str], None]) -> None:
    """What ran is declared and recorded: four kernels under a causal mask, three without."""
    emulate("gfx942")
    workload = Prefill(1, 5, 2, 40, dtype="f16", causal=causal, lse=True)
    prepared = STAGED.prepare(workload, workload.make_inputs(1, "cpu", planted=False))
    names = ("qk_scores", *(["causal_mask"] if causal else []), "row_softmax", "weighted_values")
    assert prepared.declares.kernels == names
    assert prepared.declares.never == ("scaled_dot_product",)
    assert prepared.config == {"files": " ".join(f"{name}.hip" for name in names)}


def test_builds_differ_in_what_matters() -> None:
    """A build for each set of macros that matters to a kernel."""
    counts = {kernel.name: [build.config for build in kernel.builds("gfx942")] for kernel in KERNELS}
    assert counts == {
        "hip.qk_scores": ["d64-f16", "d128-bf16", "d256-f16"],
        "hip.causal_mask": ["any"],
        "hip.row_softmax": ["f16-plain", "bf16-lse"],
        "hip.weighted_values": ["d64-f16", "d128-bf16", "d256-f16"],
    }
