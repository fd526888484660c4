from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from pytest_attnperf.workloads import attention_math
from pytest_attnperf.workloads.prefill import Prefill

LINES = [
    "b=2,s=33,h=4,hk=2,d=16,f32",
    "b=2,s=33,h=4,hk=1,d=40,f16,causal,lse",
    "b=1,s=17,kv=65,h=2,d=8,bf16,causal,lse",
    "b=3,s=5,kv=3,h=2,d=64,f16",
]


def visible(workload: Prefill) -> torch.Tensor:
    """(Sq, Skv) mask, True where a query sees a key, written as the docstring of Prefill states it."""
    rows, keys = torch.arange(workload.seq_q)[:, None], torch.arange(workload.seq_kv)[None, :]
    return keys <= rows + workload.seq_kv - workload.seq_q


@pytest.mark.parametrize("line", LINES)
def test_the_reference_agrees_with_torch(line: str) -> None:
    """The reference is what torch's own attention gives in fp64 with the mask written out."""
    workload = Prefill.parse_line(line)
    inputs = workload.make_inputs(1, "cpu", planted=False)
    q, k, v = (x.double().permute(0, 2, 1, 3) for x in inputs)
    k, v = (x.repeat_interleave(workload.heads // workload.kv_heads, dim=1) for x in (k, v))
    mask = visible(workload) if workload.causal else None
    expected = scaled_dot_product_attention(q, k, v, attn_mask=mask).permute(0, 2, 1, 3)
    outputs = workload.reference(inputs)
    torch.testing.assert_close(outputs["out"], expected, rtol=0, atol=1e-12)
    scores = (q @ k.transpose(-1, -2)) / workload.head_dim**0.5
    scores = scores if mask is None else scores.masked_fill(~mask, float("-inf"))
    assert ("lse" in outputs) == workload.lse
    if workload.lse:
        torch.testing.assert_close(outputs["lse"], scores.logsumexp(-1), rtol=0, atol=1e-12)


def test_the_causal_mask_is_bottom_right_aligned() -> None:
    """With two queries and four keys, row 0 sees keys 0 to 2 and row 1 all four."""
    workload = Prefill(1, 2, 1, 4, seq_kv=4, dtype="f32", causal=True)
    q, k, _ = workload.make_inputs(0, "cpu", planted=False)
    v = torch.eye(4).reshape(1, 4, 1, 4)  # the output is then the row of weights itself
    weights = workload.reference((q, k, v))["out"].reshape(2, 4)
    assert (weights > 0).tolist() == [[True, True, True, False], [True, True, True, True]]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("score_bytes", [1, 20_000])
def test_chunks_change_nothing(line: str, score_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows one at a time, or a few at a time, give what all at once give."""
    workload = Prefill.parse_line(line)
    inputs = workload.make_inputs(1, "cpu", planted=True)
    whole = workload.reference(inputs)
    monkeypatch.setattr(attention_math, "SCORE_BYTES_CPU", score_bytes)
    for name, tensor in workload.reference(inputs).items():
        torch.testing.assert_close(tensor, whole[name], rtol=0, atol=1e-13)


@pytest.mark.parametrize(("dtype", "eps"), [("f16", 2.0**-10), ("bf16", 2.0**-7), ("f32", 2.0**-23)])
def test_plain_is_off_by_roundings_of_its_dtype(dtype: str, eps: float) -> None:
    """The yardstick is in the working dtype, with an error of that dtype's size: neither zero nor another's."""
    workload = Prefill(1, 64, 2, 32, dtype=dtype, lse=True)
    inputs = workload.make_inputs(1, "cpu", planted=False)
    reference, plain = workload.reference(inputs), workload.plain(inputs)
    assert plain["out"].dtype == inputs[0].dtype
    assert plain["lse"].dtype == torch.float32
    for name, tensor in plain.items():
        error = float((tensor.double() - reference[name]).abs().max())
        assert 0.02 * eps < error < 8 * eps


@pytest.mark.gpu
def test_the_reference_on_a_gpu_is_far_more_exact_than_the_output_type() -> None:
    """On a GPU f16 is held against fp32 without TF32, within a hundredth of a rounding step of fp64 on the CPU."""
    workload = Prefill(1, 300, 4, 64, kv_heads=2, causal=True)
    inputs = workload.make_inputs(1, "cuda", planted=True)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        got = workload.reference(inputs)["out"]
        assert torch.backends.cuda.matmul.allow_tf32
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    expected = workload.reference(tuple(tensor.cpu() for tensor in inputs))["out"]
    assert got.dtype == torch.float32
    assert float((got.cpu().double() - expected).abs().max()) < 2.0**-10 / 100
