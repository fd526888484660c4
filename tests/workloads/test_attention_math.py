from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from pytest_attnperf.workloads import attention_math
from pytest_attnperf.workloads.attention_math import Added, alibi_slopes, alibi_sum
from pytest_attnperf.workloads.prefill import DTYPES, Prefill
from pytest_attnperf.workloads.quantisation import dequantise, quantise, round_to_tf32

LINES = [
    "b=2,s=33,h=4,hk=2,d=16,f32",
    "b=2,s=33,h=4,hk=1,d=40,f16,causal,lse",
    "b=1,s=17,kv=65,h=2,d=8,bf16,causal,lse",
    "b=3,s=5,kv=3,h=2,d=64,f16",
    "b=2,s=33,kv=50,h=4,hk=2,d=16,f16,causal,lse,w=7",
    "b=1,s=33,h=2,d=8,f32,causal,w=1",
    "b=2,s=9,kv=4,h=2,d=16,bf16,causal,lse",
    "b=1,s=40,kv=31,h=4,hk=2,d=16,f16,causal,lse,w=5",
    "b=2,s=21,kv=33,h=4,hk=2,d=32,tf32,causal,lse",
    "b=2,s=21,kv=33,h=4,hk=2,d=32,f8e4m3,causal,lse",
    "b=1,s=21,kv=17,h=2,d=32,f8e5m2fnuz,causal,lse,w=6",
    "b=2,s=21,kv=33,h=2,d=32,i8",
    "b=2,s=21,kv=33,h=4,hk=2,d=24,dv=40,f16,causal,lse",
    "b=2,s=33,kv=50,h=3,hk=1,d=16,f16,causal,lse,w=7,alibi",
    "b=1,s=50,kv=33,h=4,hk=2,d=16,dv=8,f32,lse,alibi",
    "b=2,s=33,kv=50,h=4,hk=2,d=16,bf16,lse,bias",
    "b=1,s=40,kv=31,h=4,hk=2,d=16,tf32,causal,bias",
    "b=2,s=21,kv=33,h=2,d=32,i8,pv16,causal,lse,alibi",
    "b=2,s=21,kv=33,h=2,d=32,dv=24,i8,kv8,causal,lse,bias",
]


def visible(workload: Prefill) -> torch.Tensor:
    """(Sq, Skv) mask, True where a query sees a key, written as the docstring of Prefill states it."""
    rows, keys = torch.arange(workload.seq_q)[:, None], torch.arange(workload.seq_kv)[None, :]
    last = rows + workload.seq_kv - workload.seq_q
    seen = keys <= last
    return seen & (keys > last - workload.window) if workload.window else seen


def values_of(workload: Prefill, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """q, k and v in fp64, heads first, k and v repeated for grouped heads."""
    split = workload.split_inputs(inputs)
    one = torch.ones(1)
    values = (
        dequantise(x, split.scales.get(name, one), torch.float64) for name, x in zip("qkv", split.qkv, strict=True)
    )
    q, k, v = (x.permute(0, 2, 1, 3) for x in values)
    group = workload.heads // workload.kv_heads
    return [q, k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)]


def added_to_scores(workload: Prefill, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """(H, Sq, Skv) fp64: -inf where a row does not see a key, and ALiBi or the bias, as Prefill's docstring says."""
    added = torch.zeros(workload.heads, workload.seq_q, workload.seq_kv, dtype=torch.float64)
    rows, keys = torch.arange(workload.seq_q)[:, None], torch.arange(workload.seq_kv)[None, :]
    if workload.alibi:
        distances = (rows + workload.seq_kv - workload.seq_q - keys).abs()
        added = -inputs[-1].double()[:, None, None] * distances
    if workload.bias:
        added = inputs[-1].double()
    return added.masked_fill(~visible(workload), float("-inf")) if workload.causal else added


@pytest.mark.parametrize("line", LINES)
def test_the_reference_agrees_with_torch(line: str) -> None:
    """The reference is what torch's own attention gives in fp64 with the mask written out."""
    workload = Prefill.parse_line(line)
    inputs = workload.make_inputs(1, "cpu", planted=False)
    q, k, v = values_of(workload, inputs)
    added = added_to_scores(workload, inputs)
    expected = scaled_dot_product_attention(q, k, v, attn_mask=added).permute(0, 2, 1, 3)
    outputs = workload.reference(inputs)
    torch.testing.assert_close(outputs["out"], expected, rtol=0, atol=1e-12)
    scores = (q @ k.transpose(-1, -2)) / workload.head_dim**0.5 + added
    assert ("lse" in outputs) == workload.lse
    if workload.lse:
        torch.testing.assert_close(outputs["lse"], scores.logsumexp(-1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("window", [0, 3])
def test_a_row_without_keys_is_zero_and_minus_infinity(dtype: str, window: int) -> None:
    """The rows that see no key, and no others, have out = 0 exactly and lse = -inf, in reference and plain alike."""
    workload = Prefill(2, 9, 2, 16, seq_kv=4, dtype=dtype, causal=True, lse=True, window=window)
    inputs = workload.make_inputs(1, "cpu", planted=True)
    assert workload.rows_without_keys == 5
    for outputs in (workload.reference(inputs), workload.plain(inputs)):
        assert bool((outputs["out"][:, :5] == 0).all())
        assert bool((outputs["out"][:, 5:] != 0).any(dim=(1, 3)).all())
        assert bool((outputs["lse"][:, :, :5] == float("-inf")).all())
        assert bool(outputs["lse"][:, :, 5:].isfinite().all())


def test_a_row_of_a_window_of_one_is_its_own_value() -> None:
    """With a window of one key a row sees its own key alone, so the output is v, moved to the last rows."""
    workload = Prefill(1, 3, 1, 8, seq_kv=5, dtype="f32", causal=True, window=1)
    q, k, v = workload.make_inputs(0, "cpu", planted=False)
    assert torch.equal(workload.reference((q, k, v))["out"], v[:, 2:].double())


def test_a_window_as_wide_as_the_keys_hides_none() -> None:
    """A window of Skv keys or more gives what no window gives."""
    inputs = Prefill(1, 8, 2, 8, seq_kv=12, causal=True).make_inputs(0, "cpu", planted=False)
    whole, wide, wider, narrow = (
        Prefill(1, 8, 2, 8, seq_kv=12, causal=True, window=window).reference(inputs)["out"]
        for window in (0, 12, 100, 11)
    )
    assert torch.equal(whole, wide)
    assert torch.equal(whole, wider)
    assert not torch.equal(whole, narrow)


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


def test_plain_tf32_rounds_the_operands_of_both_products() -> None:
    """tf32 differs from f32 by TF32's roundings, and not at all where the inputs of a product need none."""
    f32, tf32 = (Prefill(1, 64, 2, 32, dtype=dtype, lse=True) for dtype in ("f32", "tf32"))
    inputs = f32.make_inputs(1, "cpu", planted=False)
    assert all(torch.equal(a, b) for a, b in zip(inputs, tf32.make_inputs(1, "cpu", planted=False), strict=True))
    assert torch.equal(f32.reference(inputs)["out"], tf32.reference(inputs)["out"])
    error = (tf32.plain(inputs)["out"].double() - tf32.reference(inputs)["out"]).abs().max()
    assert 0.02 * 2.0**-10 < float(error) < 8 * 2.0**-10
    rounded = tuple(round_to_tf32(tensor) for tensor in inputs)
    assert torch.equal(tf32.plain(rounded)["lse"], f32.plain(rounded)["lse"])
    assert torch.equal(tf32.plain(rounded)["lse"], tf32.plain(inputs)["lse"])
    assert not torch.equal(tf32.plain(rounded)["out"], f32.plain(rounded)["out"])


@pytest.mark.parametrize(
    ("dtype", "step"), [("f8e4m3", 2.0**-3), ("f8e5m2", 2.0**-2), ("f8e4m3fnuz", 2.0**-3), ("i8", 1 / 127)]
)
def test_plain_8_bit_is_off_by_roundings_of_its_weights(dtype: str, step: float) -> None:
    """'out' is bf16 with an error of the size of a weight's rounding step; 'lse' has fp32's, for scores are fp32."""
    workload = Prefill(1, 64, 2, 32, dtype=dtype, lse=True)
    inputs = workload.make_inputs(1, "cpu", planted=False)
    reference, plain = workload.reference(inputs), workload.plain(inputs)
    assert (plain["out"].dtype, plain["lse"].dtype) == (torch.bfloat16, torch.float32)
    assert 0.02 * step < float((plain["out"].double() - reference["out"]).abs().max()) < 4 * step
    assert 0 < float((plain["lse"].double() - reference["lse"]).abs().max()) < 20 * 2.0**-23


def test_the_scales_of_a_quantised_tensor_count() -> None:
    """Twice a scale of v doubles 'out'; twice that of q or of k changes the scores, in reference and plain alike."""
    workload = Prefill(1, 17, 2, 16, dtype="f8e4m3", lse=True)
    q, k, v, q_scale, k_scale, v_scale = workload.make_inputs(1, "cpu", planted=False)
    for compute in (workload.reference, workload.plain):
        once = compute((q, k, v, q_scale, k_scale, v_scale))
        assert torch.equal(compute((q, k, v, q_scale, k_scale, 2 * v_scale))["out"], 2 * once["out"])
        by_q, by_k = (
            compute((q, k, v, 2 * q_scale, k_scale, v_scale)),
            compute((q, k, v, q_scale, 2 * k_scale, v_scale)),
        )
        assert not torch.equal(by_q["lse"], once["lse"])
        torch.testing.assert_close(by_q["lse"], by_k["lse"])


def test_8_bit_inputs_are_the_quantised_f32_inputs() -> None:
    """An 8-bit workload holds the same random numbers as an f32 one, quantised, with their scales behind them."""
    f32, i8 = (Prefill(1, 17, 4, 16, kv_heads=2, dtype=dtype) for dtype in ("f32", "i8"))
    plain, stored = (workload.make_inputs(5, "cpu", planted=False) for workload in (f32, i8))
    for number, tensor in enumerate(plain):
        quantised, scale = quantise(tensor, "i8")
        assert torch.equal(stored[number], quantised)
        assert torch.equal(stored[3 + number], scale)
    for number in (1, 2):  # planted, one row of f32 queries is loud, and no 8-bit one
        planted, stored_planted = (workload.make_inputs(5, "cpu", planted=True)[number] for workload in (f32, i8))
        assert torch.equal(stored_planted, quantise(planted, "i8")[0])


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


def test_slopes_of_a_power_of_two_are_geometric() -> None:
    """2^(-8 (h + 1) / H): for eight heads 1/2 down to 1/256, as the paper lists them."""
    assert alibi_slopes(8) == tuple(2.0**-power for power in range(1, 9))
    assert alibi_slopes(1) == (2.0**-8,)
    assert alibi_slopes(16)[:2] == (2.0**-0.5, 2.0**-1)


def test_slopes_of_another_number_of_heads_are_those_of_the_authors_code() -> None:
    """Twelve heads have the eight slopes of 8 and the first four of every other one of 16."""
    assert alibi_slopes(12) == (*alibi_slopes(8), *alibi_slopes(16)[0:8:2])
    assert alibi_slopes(3) == (2.0**-4, 2.0**-8, 2.0**-2)


@given(heads=st.integers(1, 200))
def test_slopes_are_positive_below_one_and_distinct(heads: int) -> None:
    """Every head has a slope of its own."""
    slopes = alibi_slopes(heads)
    assert len(slopes) == len(set(slopes)) == heads
    assert all(0 < slope < 1 for slope in slopes)


@given(slope=st.floats(1e-3, 1.0), first=st.integers(0, 40), count=st.integers(1, 60), back=st.integers(0, 90))
def test_a_sum_is_that_of_its_terms(slope: float, first: int, count: int, back: int) -> None:
    """The closed form is the sum written out, for positions before the keys, among them, and at the last one."""
    keys = range(first, first + count)
    position = keys.stop - 1 - back
    expected = math.fsum(math.exp(-slope * abs(position - key)) for key in keys)
    assert math.isclose(alibi_sum(slope, position, keys), expected, rel_tol=1e-6)


def test_what_is_added_by_rows() -> None:
    """ALiBi's distances are bottom-right, a bias is cut at the rows, and nothing stays nothing."""
    slopes = torch.tensor([0.5, 0.25])
    added = Added(slopes=slopes).of_rows(1, 2, 3, 5, torch.float16)
    assert added is not None
    assert added.dtype == torch.float32
    distances = torch.tensor([[3.0, 2.0, 1.0, 0.0, 1.0], [4.0, 3.0, 2.0, 1.0, 0.0]])
    assert torch.equal(added, -slopes[:, None, None] * distances)
    bias = torch.randn(2, 3, 5).half()
    cut = Added(bias=bias).of_rows(1, 2, 3, 5, torch.float64)
    assert cut is not None
    assert torch.equal(cut, bias[:, 1:3].double())
    assert Added().of_rows(1, 2, 3, 5, torch.float32) is None
