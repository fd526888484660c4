from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from pytest_attnperf.backends import Backend
from pytest_attnperf.correctness.judge import Judge
from pytest_attnperf.correctness.references import References
from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend, named_outputs
from pytest_attnperf.workloads.base import Workload


def make_inputs(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """x (64, 32) in f16 and an index (64,)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(64, 32, generator=generator).half(), torch.arange(64).flip(0)


def take_rows(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """softmax(x)[index]."""
    return torch.softmax(x, -1)[index]


WORKLOAD = AdHoc("test_rows[a-b]", make_inputs, take_rows)


def judged(fn: Any, workload: AdHoc = WORKLOAD) -> tuple[str, ...]:
    """The problems of one check of `fn`."""
    backend = CallableBackend("mine", fn)
    inputs = workload.make_inputs(0, "cpu", planted=False)
    judge = Judge(
        prepared := backend.prepare(workload, inputs),
        workload,
        references=References(),
        tolerance=backend.tolerance,
        device="cpu",
    )
    report = judge.check_call("check", prepared.run, seed=1, planted=True)
    assert report.right == (not report.problems)
    return report.problems


def test_functions_make_a_workload_and_a_backend() -> None:
    """Callables satisfy the same protocols as shapes and registered backends."""
    backend = CallableBackend("mine", take_rows)
    assert isinstance(WORKLOAD, Workload)
    assert isinstance(backend, Backend)
    assert backend.unsupported_reasons(WORKLOAD, DeviceInfo("cpu", "cpu-x86_64", "any")) == []
    assert WORKLOAD.id == "adhoc-test_rows_a_b_"
    assert WORKLOAD.definition()["reference"].endswith("test_adhoc.take_rows")
    assert hash(WORKLOAD) == hash(AdHoc("test_rows[a-b]", make_inputs, take_rows))


def test_a_right_function_passes_and_a_wrong_one_does_not() -> None:
    """A function is held against its own reference: other arithmetic passes, another result fails."""
    assert judged(lambda x, index: torch.softmax(x[index].float(), -1).half()) == ()
    (problem, *_) = judged(lambda x, index: torch.softmax(x[index] * 1.05, -1))
    assert "check: 'out' is off by" in problem


def test_the_reference_sees_upcast_floats_and_untouched_integers() -> None:
    """Floating-point inputs reach the reference in fp64 on a CPU, an index as it is; plain gets them as they are."""
    inputs = WORKLOAD.make_inputs(0, "cpu", planted=False)
    assert WORKLOAD.reference(inputs)["out"].dtype == torch.float64
    assert WORKLOAD.plain(inputs)["out"].dtype == torch.float16


def test_a_reference_that_rounds_is_refused() -> None:
    """A reference that stores its result in 16 bits would pass its own rounding for the truth."""
    rounds = AdHoc("x", make_inputs, lambda x, index: torch.softmax(x, -1).half())
    with pytest.raises(WorkloadError, match=r"returned 'out' as torch\.float16 for inputs in torch\.float64: it must"):
        rounds.reference(rounds.make_inputs(0, "cpu", planted=False))


def test_a_reference_that_changes_its_inputs_harms_nobody() -> None:
    """Reference and plain computation get copies, so the judged inputs stay what they were."""
    workload = AdHoc("x", make_inputs, lambda x, index: x.mul_(2)[index.mul_(0)] + x)
    inputs = workload.make_inputs(0, "cpu", planted=False)
    before = [tensor.clone() for tensor in inputs]
    workload.reference(inputs)
    workload.plain(inputs)
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True))


@pytest.mark.parametrize(
    "function",
    [
        lambda seed: torch.full((2,), float(seed)),
        lambda rows=2, *, seed: torch.full((rows,), float(seed)),
        lambda number: torch.full((2,), float(number)),
    ],
    ids=["positional", "keyword-only", "other name"],
)
def test_a_function_gets_the_seed_where_it_can_take_one(function: Any) -> None:
    """The seed goes to a parameter of that name or to one that must be given."""
    (tensor,) = AdHoc("x", function, take_rows).make_inputs(7, "cpu", planted=False)
    assert tensor.tolist() == [7.0, 7.0]


def test_a_function_without_a_seed_uses_torchs_generator() -> None:
    """Without a parameter torch is seeded, the process's own random state is left alone, defaults are kept."""
    workload = AdHoc("x", lambda rows=3: torch.randn(rows), take_rows)
    state = torch.get_rng_state()
    (one,), (again,), (other,) = (workload.make_inputs(seed, "cpu", planted=False) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert one.shape == (3,)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("function", "device", "message"),
    [
        (lambda: (torch.ones(2), 3), "cpu", "must be a tensor or a tuple of tensors; number 1 is a int"),
        (
            lambda: torch.ones(2),
            "cuda",
            "tensor 0 is on cpu, but this case is measured on cuda; create it with device=",
        ),
    ],
)
def test_inputs_are_tensors_on_the_device(function: Any, device: str, message: str) -> None:
    """Anything but tensors on the measured device is refused by number."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        AdHoc("x", function, take_rows).make_inputs(1, device, planted=False)


def test_outputs_are_named_by_their_place() -> None:
    """One tensor is 'out', several are numbered, a dict keeps its names."""
    tensor = torch.ones(1)
    assert list(named_outputs(tensor)) == ["out"]
    assert list(named_outputs((tensor, tensor))) == ["out0", "out1"]
    assert list(named_outputs({"dq": tensor})) == ["dq"]
