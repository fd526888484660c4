from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_attnperf.correctness.lines import find_worst_line, measure_lines
from pytest_attnperf.correctness.references import References
from pytest_attnperf.workloads import attention_gradients
from pytest_attnperf.workloads.backward import Backward

pytestmark = pytest.mark.usefixtures("one_thread")

Tensors = tuple[torch.Tensor, ...]
Compute = Callable[..., dict[str, torch.Tensor]]

SHAPES = {
    "square": (2, 33, 33, 4, 4, 16, True),
    "grouped": (2, 33, 33, 4, 2, 16, True),
    "one-kv-head": (1, 9, 9, 3, 1, 40, False),
    "longer-keys": (1, 17, 65, 2, 2, 8, True),
    "fewer-keys": (3, 5, 3, 4, 2, 64, False),
    "rows-without-keys": (2, 20, 7, 4, 2, 16, True),
    "one-row": (2, 1, 11, 2, 1, 32, True),
}
"""(B, Sq, Skv, H, Hk, D, causal)."""


def inputs_of(shape: str, dtype: torch.dtype, seed: int = 0) -> tuple[Tensors, bool]:
    """((q, k, v, dout), causal), rounded to `dtype`."""
    batch, seq_q, seq_kv, heads, kv_heads, head_dim, causal = SHAPES[shape]
    generator = torch.Generator().manual_seed(seed)
    sizes = [(seq_q, heads), (seq_kv, kv_heads), (seq_kv, kv_heads), (seq_q, heads)]
    return tuple(torch.randn(batch, *size, head_dim, generator=generator).to(dtype) for size in sizes), causal


def autograd(inputs: Tensors, dtype: torch.dtype, *, causal: bool) -> dict[str, torch.Tensor]:
    """Eager attention of the inputs in `dtype` and what torch.autograd makes of it, with 'out' and 'lse' beside."""
    leaves = [tensor.to(dtype).requires_grad_() for tensor in inputs[:3]]
    q, k, v = (tensor.permute(0, 2, 1, 3) for tensor in leaves)
    k, v = (tensor.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for tensor in (k, v))
    scores = (q @ k.transpose(-1, -2)) * (1 / math.sqrt(q.shape[-1]))
    seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    seen = seen.tril(k.shape[2] - q.shape[2]) if causal else seen
    weights = torch.softmax(scores.masked_fill(~seen, float("-inf")), -1).masked_fill(~seen, 0.0)
    out = (weights @ v).permute(0, 2, 1, 3)
    gradients = torch.autograd.grad(out, leaves, inputs[3].to(dtype))
    lse = scores.detach().masked_fill(~seen, float("-inf")).logsumexp(-1)
    return {"out": out.detach(), "lse": lse, **dict(zip(("dq", "dk", "dv"), gradients, strict=True))}


def plain(inputs: Tensors, *, causal: bool) -> dict[str, torch.Tensor]:
    """The plain gradients, given the exact forward results as they are stored."""
    exact = autograd(inputs, torch.float64, causal=causal)
    out, lse = exact["out"].to(inputs[0].dtype), exact["lse"].float()
    return attention_gradients.compute_plain(*inputs, out, lse, causal=causal)


def error(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest difference, NaN if there is one."""
    return float((got.double() - expected.double()).abs().max())


class LargestTensor(TorchDispatchMode):
    """Sees the memory of every tensor that an operator returns, in bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.largest = max(self.largest, result.untyped_storage().nbytes())
        return result


@pytest.mark.parametrize("shape", SHAPES)
def test_the_reference_agrees_with_autograd(shape: str) -> None:
    """The reference is what torch.autograd gives in fp64, for every kind of shape, of the inputs as they are stored."""
    for dtype in (torch.float64, torch.bfloat16):
        inputs, causal = inputs_of(shape, dtype)
        expected = autograd(inputs, torch.float64, causal=causal)
        got = attention_gradients.compute_reference(*inputs, causal=causal)
        assert list(got) == ["dq", "dk", "dv"]
        for name, tensor in got.items():
            torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-10)
            assert tensor.is_contiguous()


@pytest.mark.parametrize("score_bytes", [1, 20_000])
@pytest.mark.parametrize("shape", SHAPES)
def test_chunks_change_nothing(shape: str, score_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows one at a time, or a few at a time, give what all at once give: exactly but for the order of sums."""
    inputs, causal = inputs_of(shape, torch.float32)
    whole, whole_plain = attention_gradients.compute_reference(*inputs, causal=causal), plain(inputs, causal=causal)
    monkeypatch.setattr(attention_gradients, "SCORE_BYTES_CPU", score_bytes)
    for name, tensor in attention_gradients.compute_reference(*inputs, causal=causal).items():
        torch.testing.assert_close(tensor, whole[name], rtol=0, atol=1e-13)
    for name, tensor in plain(inputs, causal=causal).items():
        torch.testing.assert_close(tensor, whole_plain[name], rtol=0, atol=3e-6)


def test_no_tensor_is_larger_than_a_chunk_or_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the sequences, what is held at once is a block of scores, or the gradients of every query head."""
    inputs = tuple(torch.randn(2, 256, 2, 16) for _ in range(4))
    monkeypatch.setattr(attention_gradients, "SCORE_BYTES_CPU", 64_000)
    with LargestTensor() as seen:
        attention_gradients.compute_reference(*inputs, causal=True)
    one_gradient = 2 * 256 * 2 * 16 * 8
    assert one_gradient <= seen.largest <= max(64_000, one_gradient)
    monkeypatch.setattr(attention_gradients, "SCORE_BYTES_CPU", 64 << 20)
    with LargestTensor() as seen:
        attention_gradients.compute_reference(*inputs, causal=True)
    assert seen.largest == 2 * 2 * 256 * 256 * 8


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("shape", ["grouped", "longer-keys", "rows-without-keys"])
def test_plain_rounds_as_autograd_does(shape: str, dtype: torch.dtype) -> None:
    """The yardstick is in the working dtype and about as far from the truth as autograd in it, not less."""
    inputs, causal = inputs_of(shape, dtype)
    truth = attention_gradients.compute_reference(*inputs, causal=causal)
    eager, got = autograd(inputs, dtype, causal=causal), plain(inputs, causal=causal)
    for name in ("dq", "dk", "dv"):
        assert got[name].dtype == dtype
        assert 0.5 < error(got[name], truth[name]) / error(eager[name], truth[name]) < 4
    if dtype == torch.bfloat16:
        # dv does not depend on delta, so it is autograd's own, rounding by rounding, but for the order of sums.
        assert error(got["dv"], eager["dv"]) < 0.1 * error(got["dv"], truth["dv"])


def exact(inputs: Tensors, *, causal: bool) -> dict[str, torch.Tensor]:
    """The reference gradients."""
    return attention_gradients.compute_reference(*inputs, causal=causal)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("compute", [exact, plain])
def test_a_row_without_keys_gives_and_gets_nothing(compute: Compute, dtype: torch.dtype) -> None:
    """With 20 rows and 7 keys the first 13 rows see none: their dq is zero, and their dout reaches no dk or dv."""
    inputs, causal = inputs_of("rows-without-keys", dtype)
    got = compute(inputs, causal=causal)
    other = compute((*inputs[:3], inputs[3].index_fill(1, torch.arange(13), 100.0)), causal=causal)
    assert not got["dq"][:, :13].any()
    assert got["dq"][:, 14:].any(dim=-1).all()  # row 13 sees one key, whose weight does not depend on q
    for name in ("dq", "dk", "dv"):
        assert got[name].isfinite().all()
        assert torch.equal(got[name], other[name])


def test_plain_reads_what_a_kernel_is_given() -> None:
    """delta comes from the `out` that was handed over, and in f32 the weights come from `lse`; f16 does not read it."""
    for dtype, lse_read in ((torch.float32, True), (torch.float16, False)):
        inputs, causal = inputs_of("grouped", dtype)
        exact = autograd(inputs, torch.float64, causal=causal)
        out, lse = exact["out"].to(dtype), exact["lse"].float()
        got = attention_gradients.compute_plain(*inputs, out, lse, causal=causal)
        shifted_out = attention_gradients.compute_plain(*inputs, out + 0.25, lse, causal=causal)
        assert [torch.equal(shifted_out[name], got[name]) for name in got] == [False, False, True]
        shifted_lse = attention_gradients.compute_plain(*inputs, out, lse + 0.25, causal=causal)
        assert [torch.equal(shifted_lse[name], got[name]) for name in got] == [not lse_read] * 3


def test_inputs_that_want_gradients_are_read_only() -> None:
    """Nothing is recorded for autograd, and nothing is written to what is passed in."""
    inputs, causal = inputs_of("grouped", torch.float32)
    leaves = tuple(tensor.clone().requires_grad_() for tensor in inputs)
    results = [attention_gradients.compute_reference(*leaves, causal=causal), plain(leaves, causal=causal)]
    assert not any(tensor.requires_grad for result in results for tensor in result.values())
    assert all(torch.equal(leaf, tensor) for leaf, tensor in zip(leaves, inputs, strict=True))


@pytest.mark.gpu
def test_the_reference_on_a_gpu_is_far_more_exact_than_the_output_type() -> None:
    """On a GPU f16 is held against fp32 without TF32, within a hundredth of a rounding step of fp64 on the CPU."""
    inputs, causal = inputs_of("grouped", torch.float16)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        got = attention_gradients.compute_reference(*(tensor.cuda() for tensor in inputs), causal=causal)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    expected = attention_gradients.compute_reference(*inputs, causal=causal)
    for name, tensor in got.items():
        assert tensor.dtype == torch.float32
        assert error(tensor.cpu(), expected[name]) < 2.0**-10 / 100


def test_a_kernel_that_keeps_dp_in_fp32_is_far_from_the_budget_of_every_row() -> None:
    """Where one key has nearly all of a row's weight, dP - delta cancels: what one plain computation is off by there
    may be luck, and the larger of both ways of rounding is a yardstick for either kind of kernel."""
    workload = Backward.parse("backward-b1-s256-h16-hk4-d128-bf16-causal")
    alone, both = [], []
    for seed in range(3):
        inputs = workload.make_inputs(seed, "cpu", planted=True)
        truth, (kernel,) = workload.reference(inputs)["dq"], workload.plain_otherwise(inputs)
        judged = References().compute_expected(workload, inputs, seed=seed, planted=True).yardsticks["dq"].lines
        for found, lines in ((alone, measure_lines(workload.plain(inputs)["dq"], truth)), (both, judged)):
            line = find_worst_line(kernel["dq"], truth, lines, 2.0, torch.finfo(torch.bfloat16).eps)
            assert line is not None
            found.append(line.error / line.allowed)
    assert max(both) < 0.1 < max(alone)
