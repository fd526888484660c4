from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from pytest_attnperf.backends import Around, Backend, Outputs, Prepared, Tensors
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import CheckReport, DeviceInfo
from pytest_attnperf.records.trials import DECLARED, INVARIANCE, TrialEnding, TrialResult
from pytest_attnperf.testing.liars import LIARS
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.causal_mask import CausalMask
from pytest_attnperf.workloads.softmax import Softmax

CPU = DeviceInfo("cpu", "cpu-x86_64", "test")
SPLITS = {liar.trick: liar for liar in LIARS}["splits_by_batch"]


def try_case(backend: Backend, workload: Workload, *trials: str) -> CheckReport:
    """The report of a right case after these trials."""
    subject = TorchSubject(backend, workload, CPU, Seeds(1, 2, 3))
    subject.prepare()
    assert subject.check().right
    return subject.finish(trials=trials).check


def by_variant(report: CheckReport) -> dict[str, TrialResult]:
    """Results by variant."""
    return {result.variant: result for result in report.trials}


def test_a_difference_is_reported_in_ulps_where_nothing_is_declared() -> None:
    """The case stays right; the variant that differs says by how much and where, the others have 0 ulps."""
    report = try_case(CallableBackend("f", uneven), rows_of(6), INVARIANCE)
    assert not report.problems
    found = by_variant(report)
    assert list(found) == ["alone", "reversed", "half", "doubled"]
    assert found["alone"].ending is TrialEnding.RIGHT
    assert found["alone"].ulps == 1.0
    assert "'out' is not what all rows together gave: 8 of 8 elements have other bits, by up to 1 ulp" in (
        found["alone"].why
    )
    assert [found[name].ulps for name in ("reversed", "half", "doubled")] == [0.0] * 3


def test_a_difference_is_wrong_where_invariance_is_declared() -> None:
    """Even if the run asks for no trial but those of what is declared; the twin that declares it too is right."""
    lying, honest = (try_case(backend, SPLITS.workload, DECLARED) for backend in (SPLITS.lying, SPLITS.honest))
    assert by_variant(lying)["alone"].ending is TrialEnding.WRONG
    assert "its backend declares invariant=True" in lying.problems[0]
    assert honest.right
    assert {name: result.ulps for name, result in by_variant(honest).items()} == dict.fromkeys(
        ("alone", "reversed", "half", "doubled", "chunk"), 0.0
    )


def test_what_is_declared_is_tried_once() -> None:
    """A run that asks for invariance and for what is declared runs the trial once, and without a declaration only the
    first asks."""
    report = try_case(SPLITS.honest, SPLITS.workload, INVARIANCE, DECLARED)
    assert len(report.trials) == 5
    assert not try_case(CallableBackend("f", uneven), rows_of(6), DECLARED).trials


def uneven(x: torch.Tensor) -> torch.Tensor:
    """x, and the next number for a row alone: within the budget of a rounded sum."""
    out = x.clone()
    return torch.nextafter(out, torch.full_like(out, 9.0)) if len(x) == 1 else out


def rows_of(count: int, reference: Callable[..., Any] | None = None) -> AdHoc:
    """Rows of 8 numbers from 1 to 2."""
    return AdHoc("rows", lambda seed: 1 + torch.rand(count, 8), reference or (lambda x: x * 1.0))


def test_rows_that_the_reference_does_not_have_are_left_out() -> None:
    """Whatever the function declares, and with the reason."""
    backend = CallableBackend("f", lambda x: x / x.norm(), invariant=True)
    report = try_case(backend, rows_of(6, lambda x: x / x.norm()), DECLARED)
    assert not report.problems
    (result,) = report.trials
    assert result.ending is TrialEnding.LEFT_OUT
    assert "computes no dimension of its first input row by row" in result.why


def test_a_function_that_refuses_fewer_rows_is_not_wrong() -> None:
    """An error is no wrong result."""

    def even_only(x: torch.Tensor) -> torch.Tensor:
        if len(x) % 2:
            raise ValueError("rows must be even")
        return x * 1.0

    report = try_case(CallableBackend("f", even_only, invariant=True), rows_of(6), DECLARED)
    assert not report.problems
    endings = {name: result.ending for name, result in by_variant(report).items()}
    assert endings == {
        "alone": TrialEnding.REFUSED,
        "reversed": TrialEnding.RIGHT,
        "half": TrialEnding.REFUSED,
        "doubled": TrialEnding.RIGHT,
    }


def test_calls_that_differ_on_the_same_inputs_are_told_as_such() -> None:
    """Atomics differ from call to call, whatever else is in the batch."""

    def restless(x: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.rand_like(x) < 0.5, torch.nextafter(x, x + 1), x)

    report = try_case(CallableBackend("f", restless), rows_of(6), INVARIANCE)
    told = [result.why for result in report.trials if result.ulps]
    assert told
    assert all("two calls of the whole on the same inputs differ, too" in why for why in told)


@dataclass(frozen=True)
class Rows(Backend[Any]):
    """Softmax by torch, or a mask, of no more than `most` rows."""

    families = ("softmax", "causal_mask")
    most: int = 100

    def unsupported_reasons(self, workload: Any, device: DeviceInfo) -> list[str]:
        """Says how many rows are too many."""
        return ["too many rows"] if getattr(workload, "rows", 0) > self.most else []

    def prepare(self, workload: Any, inputs: Tensors) -> Prepared:
        """Computes in fp64."""

        def outputs(raw: torch.Tensor) -> Outputs:
            return {"out": raw} if workload.family == "softmax" else {"scores": raw}

        def mask(scores: torch.Tensor) -> torch.Tensor:
            return scores.masked_fill_(workload.hidden_keys("cpu"), float("-inf"))

        def softmax(x: torch.Tensor) -> torch.Tensor:
            return x.double().softmax(-1).to(x.dtype)

        call = softmax if workload.family == "softmax" else mask
        return Prepared(call, tuple(tensor.clone() for tensor in inputs), lambda new: new, outputs)


def test_what_the_backend_does_not_support_is_left_out() -> None:
    """A part that is too large for it, with its reason."""
    report = try_case(Rows("rows", most=8), Softmax(6, 40), INVARIANCE)
    assert by_variant(report)["doubled"] == TrialResult(
        INVARIANCE, "doubled", TrialEnding.LEFT_OUT, "softmax-r12-c40-f16 is not supported: too many rows"
    )
    assert by_variant(report)["alone"].ulps == 0.0


def test_calls_that_write_to_their_inputs_are_left_out() -> None:
    """What they find there is no input of theirs alone."""
    (result,) = try_case(Rows("rows"), CausalMask(batch=2, seq_q=4, heads=1), INVARIANCE).trials
    assert result == TrialResult(INVARIANCE, "", TrialEnding.LEFT_OUT, "its calls write to their inputs")


def test_a_wrapped_backend_declares_what_its_backend_declares() -> None:
    """A pinned kernel keeps its promise."""
    assert Around(SPLITS.honest).invariant
    assert not Around(replace(SPLITS.honest, invariant=False)).invariant


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_declared_kernels_hold_on_a_gpu(dtype: str) -> None:
    """Softmax in fp64 by torch has the same bits in every batch: rounding hides the order of its sums."""
    device = DeviceInfo("cuda", "gpu", "test")
    subject = TorchSubject(replace(Rows("rows"), invariant=True), Softmax(64, 4096, dtype), device, Seeds(1, 2, 3))
    subject.prepare()
    assert subject.check().right
    report = subject.finish(trials=(DECLARED,)).check
    assert not report.problems
    assert {result.ulps for result in report.trials} <= {0.0, None}
