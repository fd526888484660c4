"""Our reference against an implementation nobody here wrote: torch's scaled_dot_product_attention on a CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from pytest_attnperf.correctness.budget import list_problems
from pytest_attnperf.correctness.metrics import compare_output
from pytest_attnperf.correctness.references import References
from pytest_attnperf.records import Tolerance
from pytest_attnperf.workloads.prefill import Prefill

pytestmark = pytest.mark.usefixtures("one_thread")

LENGTH_MAX = 70
HEAD_DIM_MAX = 80


@st.composite
def workloads(draw: st.DrawFn) -> Prefill:
    """Any small workload in an ordinary dtype; causal with more, as many, or fewer keys than queries; some with ALiBi,
    a bias, or another head dimension of v."""
    kv_heads, masked = draw(st.integers(1, 2)), draw(st.sampled_from(["none", "causal", "causal", "window"]))
    added = draw(st.sampled_from(["none", "none", "alibi", "bias"]))
    return Prefill(
        batch=draw(st.integers(1, 3)),
        seq_q=draw(st.integers(1, LENGTH_MAX)),
        heads=kv_heads * draw(st.integers(1, 3)),
        head_dim=draw(st.integers(8, HEAD_DIM_MAX)),
        seq_kv=draw(st.integers(1, LENGTH_MAX)),
        kv_heads=kv_heads,
        dtype=draw(st.sampled_from(["f32", "f16", "bf16"])),
        causal=masked != "none",
        window=draw(st.integers(1, LENGTH_MAX)) if masked == "window" else 0,
        head_dim_v=draw(st.sampled_from([0, 0, 0, 8, 40])),
        alibi=added == "alibi",
        bias=added == "bias",
    )


def visible(workload: Prefill) -> torch.Tensor | None:
    """(Sq, Skv), True where a query sees a key, written as the docstring of Prefill states it; None without a mask."""
    if not workload.causal:
        return None
    last = torch.arange(workload.seq_q)[:, None] + workload.seq_kv - workload.seq_q
    keys = torch.arange(workload.seq_kv)[None, :]
    return (keys <= last) & (keys > last - (workload.window or LENGTH_MAX + 1))


def attn_mask(workload: Prefill, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor | None:
    """The mask; with ALiBi or a bias what is added to the scores instead, -inf where a row does not see a key."""
    mask = visible(workload)
    if not workload.alibi and not workload.bias:
        return mask
    added = inputs[3]
    if workload.alibi:
        rows = torch.arange(workload.seq_q)[:, None] + workload.seq_kv - workload.seq_q
        added = -inputs[3][:, None, None] * (rows - torch.arange(workload.seq_kv)[None, :]).abs()
    added = added if mask is None else added.masked_fill(~mask, float("-inf"))
    return added.to(inputs[0].dtype)[None]


def sdpa(backend: SDPBackend, workload: Prefill, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """torch's attention, pinned to a backend, with torch's own form of the mask where it has one."""
    mask = attn_mask(workload, inputs)
    top_left = mask is not None and mask.dtype == torch.bool and not workload.window
    top_left = top_left and workload.seq_q == workload.seq_kv
    if workload.head_dim_v != workload.head_dim:
        backend = SDPBackend.MATH  # flash takes one head dimension
    q, k, v = (tensor.transpose(1, 2) for tensor in inputs[:3])
    with sdpa_kernel([backend]):
        out = scaled_dot_product_attention(
            q, k, v, attn_mask=None if top_left else mask, is_causal=top_left, enable_gqa=True
        )
    return out.transpose(1, 2)


def found_in(workload: Prefill, backend: SDPBackend, *, seed: int, planted: bool) -> tuple[str, ...]:
    """What the judge's arithmetic finds wrong with torch's result."""
    inputs = workload.make_inputs(seed, "cpu", planted=planted)
    expected = References().compute_expected(workload, inputs, seed=seed, planted=planted)
    got = sdpa(backend, workload, inputs)
    return list_problems(
        [compare_output(workload.id, "out", got, expected.reference["out"], expected.yardsticks["out"], Tolerance())]
    )


DRAWN = {
    "workload": workloads(),
    "backend": st.sampled_from([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]),
    "seed": st.integers(0, 1 << 20),
    "planted": st.booleans(),
}


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(**DRAWN)
def test_torch_agrees_with_the_reference(workload: Prefill, backend: SDPBackend, seed: int, planted: bool) -> None:
    """For 200 drawn workloads, masks, windows, grouped heads, rows without keys, ALiBi, biases and head dimensions of v
    included, torch's own attention is within the measured budget of our reference, on random and on planted inputs."""
    assert found_in(workload, backend, seed=seed, planted=planted) == ()


@pytest.mark.soak
@settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(**DRAWN)
def test_torch_agrees_for_thousands(workload: Prefill, backend: SDPBackend, seed: int, planted: bool) -> None:
    """For 2,000 workloads drawn anew in every run, too."""
    assert found_in(workload, backend, seed=seed, planted=planted) == ()


@pytest.mark.parametrize(
    "changed",
    [{"window": 5}, {"window": 7}, {"window": 0}, {"window": 0, "causal": False}],
    ids=["a key less", "a key more", "no window", "no mask"],
)
@pytest.mark.parametrize("lengths", [(40, 40), (20, 65), (65, 20)], ids=str)
def test_another_problem_is_not_taken_for_this_one(changed: dict[str, int], lengths: tuple[int, int]) -> None:
    """Judged as a window of 6 keys, torch's result for any other mask is found wrong: agreeing is not automatic."""
    asked = Prefill(1, lengths[0], 4, 32, seq_kv=lengths[1], kv_heads=2, causal=True, window=6)
    inputs = asked.make_inputs(3, "cpu", planted=True)
    expected = References().compute_expected(asked, inputs, seed=3, planted=True)
    for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
        got = sdpa(backend, replace(asked, **changed), inputs)
        figures = compare_output("x", "out", got, expected.reference["out"], expected.yardsticks["out"], Tolerance())
        assert figures.max_error > 20 * figures.max_budget


@pytest.mark.parametrize(
    ("asked", "taken"),
    [
        ({"alibi": True}, {}),
        ({"bias": True}, {}),
        ({}, {"bias": True}),
        ({"alibi": True}, {"alibi": True, "seq_q": 21}),
    ],
    ids=["no ALiBi", "no bias", "a bias", "distances from another row"],
)
def test_other_scores_are_not_taken_for_these(asked: dict[str, bool], taken: dict[str, int]) -> None:
    """Judged with ALiBi or a bias, torch's result without it is found wrong, and so are distances off by one."""
    workload = Prefill(1, 20, 4, 32, seq_kv=65, kv_heads=2, **asked)
    inputs = workload.make_inputs(3, "cpu", planted=True)
    expected = References().compute_expected(workload, inputs, seed=3, planted=True)
    other = Prefill(**{"batch": 1, "seq_q": 20, "heads": 4, "head_dim": 32, "seq_kv": 65, "kv_heads": 2, **taken})
    further = other.make_inputs(3, "cpu", planted=True)[3:]
    if other.seq_q > 20:
        inputs = (torch.cat([inputs[0], inputs[0][:, -1:]], dim=1), *inputs[1:])
    got = sdpa(SDPBackend.MATH, other, (*inputs[:3], *further))[:, :20]
    figures = compare_output("x", "out", got, expected.reference["out"], expected.yardsticks["out"], Tolerance())
    assert figures.max_error > 10 * figures.max_budget
