"""Gradients of attention under the judge: honest backward passes, and liars that are wrong in one output or two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels.native.backward import BACKENDS
from pytest_attnperf.backends import Prepared
from pytest_attnperf.correctness.judge import Judge
from pytest_attnperf.correctness.references import References
from pytest_attnperf.records import CheckReport, ErrorFigures, Tolerance
from pytest_attnperf.workloads.backward import Backward

pytestmark = pytest.mark.usefixtures("one_thread")

Judged = Callable[..., list[CheckReport]]
Gradients = dict[str, torch.Tensor]

SQUARE = Backward.parse_line("b=2,s=48,h=4,hk=2,d=32,causal,f16")
WIDE = Backward.parse_line("b=2,s=33,kv=80,h=4,hk=2,d=32,causal,bf16")
PLAIN = Backward.parse_line("b=2,s=40,kv=64,h=2,d=32,f32")


def differentiate(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    causal: bool,
    diagonal: int | None = None,
    scale_dk: bool = True,
    rows_left_out_of_dv: int = 0,
    subtract_delta: bool = True,
    sum_group: bool = True,
    keys_left_out_of_dk: int = 0,
) -> Gradients:
    """An honest kernel: weights exp(S - lse), dP and delta in fp32, P and dS rounded to the input type for products.

    The arguments are the ways to be wrong:
    diagonal               row i sees key j iff j <= i + diagonal; Skv - Sq unless given
    scale_dk               False leaves 1 / sqrt(D) out of dK
    rows_left_out_of_dv    this many rows at the end do not reach dV
    subtract_delta         False makes dS = P * dP
    sum_group              False takes the first query head of each group for dK
    keys_left_out_of_dk    dK of this many keys at the end is zero
    """
    (_, rows, heads, head_dim), (_, keys, kv_heads, _) = q.shape, k.shape
    wide_k, wide_v = (tensor.float().repeat_interleave(heads // kv_heads, dim=2) for tensor in (k, v))
    scale = head_dim**-0.5
    weights = torch.exp(torch.einsum("bihd,bjhd->bhij", q.float(), wide_k) * scale - lse[..., None])
    if causal:
        shift = keys - rows if diagonal is None else diagonal
        weights = weights * (torch.arange(keys)[None, :] <= torch.arange(rows)[:, None] + shift)
    dweights = torch.einsum("bihd,bjhd->bhij", dout.float(), wide_v)
    delta = (dout.float() * out.float()).sum(-1).transpose(1, 2)[..., None]
    dscores = (weights * (dweights - delta if subtract_delta else dweights)).to(q.dtype).float()
    used = weights.to(q.dtype).float()[:, :, : rows - rows_left_out_of_dv]
    dq = torch.einsum("bhij,bjhd->bihd", dscores, wide_k) * scale
    dk = torch.einsum("bhij,bihd->bjhd", dscores, q.float()) * (scale if scale_dk else 1.0)
    dv = torch.einsum("bhij,bihd->bjhd", used, dout.float()[:, : rows - rows_left_out_of_dv])
    dk, dv = (tensor.unflatten(2, (kv_heads, -1)) for tensor in (dk, dv))
    dk = dk.sum(3) if sum_group else dk[:, :, :, 0]
    dk[:, keys - keys_left_out_of_dk :] = 0.0
    return {name: tensor.to(q.dtype) for name, tensor in (("dq", dq), ("dk", dk), ("dv", dv.sum(3)))}


def problems(reports: list[CheckReport]) -> list[str]:
    """Everything found wrong, after asserting that each report compared all three gradients."""
    assert all({figure.output for figure in report.figures} == {"dq", "dk", "dv"} for report in reports)
    assert all(report.right == (not report.problems) for report in reports)
    return [problem for report in reports for problem in report.problems]


def wrong_outputs(report: CheckReport) -> set[str]:
    """Names of the outputs that a problem of the report is about."""
    return {name for name in ("dq", "dk", "dv") if any(f"'{name}'" in problem for problem in report.problems)}


def judge_of(prepared: Prepared, workload: Backward, references: References, tolerance: Tolerance) -> Judge:
    """A judge on the CPU."""
    return Judge(prepared, workload, references=references, tolerance=tolerance, device="cpu")


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize(
    "shape",
    ["b=2,s=48,h=4,hk=2,d=32,causal", "s=33,kv=80,h=3,hk=1,d=40,causal", "b=2,s=17,kv=30,h=2,d=16", "s=64,h=2,d=64"],
)
def test_honest_backward_passes_are_right(shape: str, dtype: str, judged: Judged) -> None:
    """A kernel in the way of FlashAttention passes in every dtype, with grouped heads, masks and longer keys."""
    workload = Backward.parse_line(f"{shape},{dtype}")
    assert problems(judged(workload, lambda *given: differentiate(*given, causal=workload.causal))) == []


@pytest.mark.parametrize("workload", [SQUARE, WIDE, PLAIN], ids=lambda workload: workload.id)
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_our_backends_are_right(backend: Any, workload: Backward, references: References) -> None:
    """Both backends pass the judge on timed and on planted inputs, loaded into the same memory."""
    prepared = backend.prepare(workload, workload.make_inputs(0, "cpu", planted=False))
    judge = judge_of(prepared, workload, references, backend.tolerance)
    reports = [judge.check_call("check", prepared.run, seed=seed, planted=seed > 1) for seed in (1, 2, 3)]
    assert problems(reports) == []


LIARS = [
    ("dk without the scale", {"scale_dk": False}, {"dk"}),
    ("last 16 rows not in dv", {"rows_left_out_of_dv": 16}, {"dv"}),
    ("delta left out", {"subtract_delta": False}, {"dq", "dk"}),
    ("one head of a group", {"sum_group": False}, {"dk"}),
    ("of the problem without a mask", {"diagonal": 1000}, {"dq", "dk", "dv"}),
    ("mask leaks by one", {"diagonal": 1}, {"dq", "dk", "dv"}),
]


@pytest.mark.parametrize(("lie", "wrong"), [liar[1:] for liar in LIARS], ids=[liar[0] for liar in LIARS])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_wrong_gradients_are_caught_by_name(lie: dict[str, Any], wrong: set[str], dtype: str, judged: Judged) -> None:
    """Each liar fails every check, in exactly the outputs it is wrong in; its honest twin passes all of them."""
    workload = Backward.parse_line(f"b=2,s=48,h=4,hk=2,d=32,causal,{dtype}")
    reports = judged(workload, lambda *given: differentiate(*given, causal=True, **lie))
    assert problems(reports)
    assert [wrong_outputs(report) for report in reports] == [wrong] * 3
    assert problems(judged(workload, lambda *given: differentiate(*given, causal=True))) == []


def test_a_lost_gradient_of_the_last_key_needs_planted_inputs(judged: Judged) -> None:
    """dk = 0 for the last of 2,048 keys in bf16 passes ordinary inputs, and fails all that plant a row on that key."""
    workload = Backward.parse_line("s=64,kv=2048,h=2,d=64,causal,bf16")
    ordinary, *planted = judged(workload, lambda *given: differentiate(*given, causal=True, keys_left_out_of_dk=1))
    assert ordinary.right
    for report in planted:
        assert wrong_outputs(report) == {"dk"}
        (worst,) = [figure for figure in report.figures if figure.output == "dk"]
        assert worst.worst_index[1] == 2047
    assert problems(judged(workload, lambda *given: differentiate(*given, causal=True))) == []


def test_lower_precision_is_caught(judged: Judged) -> None:
    """bf16 arithmetic under an f16 or f32 name is beyond the budget in every gradient."""

    def lower(*given: torch.Tensor) -> Gradients:
        *tensors, lse = given
        low = differentiate(*(tensor.bfloat16() for tensor in tensors), lse, causal=True)
        return {name: tensor.to(given[0].dtype) for name, tensor in low.items()}

    for dtype in ("f16", "f32"):
        workload = Backward.parse_line(f"b=2,s=48,h=4,hk=2,d=32,causal,{dtype}")
        assert [wrong_outputs(report) for report in judged(workload, lower)] == [{"dq", "dk", "dv"}] * 3


def test_a_gradient_that_is_missing_is_named(judged: Judged) -> None:
    """A backward pass that gives no dv is wrong, though dq and dk are right."""

    def without_dv(*given: torch.Tensor) -> Gradients:
        return {name: tensor for name, tensor in differentiate(*given, causal=True).items() if name != "dv"}

    for report in judged(SQUARE, without_dv):
        (problem,) = report.problems
        assert "output 'dv' is missing; the backend gave dk, dq" in problem


def figures_by_output(tolerance: Tolerance, call: Callable[..., Gradients]) -> dict[str, ErrorFigures]:
    """Figures of one check of SQUARE under a tolerance."""
    inputs = SQUARE.make_inputs(0, "cpu", planted=False)
    own = tuple(tensor.clone() for tensor in inputs)
    prepared = Prepared(call=call, tensors=own, convert=lambda tensors: tensors, outputs=lambda raw: raw)
    report = judge_of(prepared, SQUARE, References(), tolerance).check_call("check", prepared.run, seed=4, planted=True)
    return {figure.output: figure for figure in report.figures}


def test_a_multiplier_of_one_output_widens_no_other() -> None:
    """Three times plain's error for dq moves dq's budgets by one such error, and dk's and dv's by nothing."""

    def honest(*given: torch.Tensor) -> Gradients:
        return differentiate(*given, causal=True)

    usual = figures_by_output(Tolerance(), honest)
    wider = figures_by_output(Tolerance(outputs=(("dq", 3.0),), source="a test"), honest)
    inputs = SQUARE.make_inputs(4, "cpu", planted=True)
    expected = References().compute_expected(SQUARE, inputs, seed=4, planted=True)
    for name in ("dk", "dv"):
        assert (wider[name].max_budget, wider[name].rms_budget) == (usual[name].max_budget, usual[name].rms_budget)
    rms_error = expected.yardsticks["dq"].rms_error
    assert wider["dq"].rms_budget - usual["dq"].rms_budget == pytest.approx(rms_error, rel=1e-3)
    assert wider["dq"].max_budget > usual["dq"].max_budget


def test_a_multiplier_excuses_the_named_output_alone(references: References) -> None:
    """A dq that is 2.5 times plain's error off passes with 3 for dq, and fails with 3 for dk."""
    inputs = SQUARE.make_inputs(0, "cpu", planted=False)
    expected = references.compute_expected(SQUARE, SQUARE.make_inputs(4, "cpu", planted=False), seed=4, planted=False)
    reference, yardstick = expected.reference["dq"], expected.yardsticks["dq"]

    def off(*given: torch.Tensor) -> Gradients:
        gradients = differentiate(*given, causal=True)
        smallest = int(reference.abs().argmin())
        shifted = reference.to(torch.float16)
        # Where the value is near zero its own rounding step is a small part of the budget.
        step = 2.0**-10 * float(reference.square().mean().sqrt())
        shifted.view(-1)[smallest] += 2.5 * yardstick.max_error + step
        return {**gradients, "dq": shifted}

    def right(tolerance: Tolerance) -> bool:
        own = tuple(tensor.clone() for tensor in inputs)
        prepared = Prepared(call=off, tensors=own, convert=lambda tensors: tensors, outputs=lambda raw: raw)
        judge = judge_of(prepared, SQUARE, references, tolerance)
        return judge.check_call("check", prepared.run, seed=4, planted=False).right

    assert right(Tolerance(outputs=(("dq", 3.0),), source="a test"))
    assert not right(Tolerance(outputs=(("dk", 3.0),), source="a test"))
    assert not right(Tolerance())
