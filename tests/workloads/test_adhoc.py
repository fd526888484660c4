from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from pytest_attnperf.backends import Backend
from pytest_attnperf.correctness.judge import Judge
from pytest_attnperf.correctness.references import References
from pytest_attnperf.errors import UsageError, WorkloadError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads import adhoc
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend, name_outputs
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


def test_a_reference_that_rounds_is_widened() -> None:
    """A reference that names 16 bits for its result, or fp32 for its sums, is run in fp64 for the truth."""
    rounds = AdHoc("x", make_inputs, lambda x, index: torch.softmax(x.float(), -1).half())
    inputs = rounds.make_inputs(0, "cpu", planted=False)
    assert torch.equal(rounds.reference(inputs)["out"], torch.softmax(inputs[0].double(), -1))
    assert rounds.plain(inputs)["out"].dtype == torch.float16


def test_a_reference_that_leaves_torch_is_refused() -> None:
    """What goes by way of numpy is rounded to what it says, and its rounding would pass for the truth."""
    rounds = AdHoc("x", make_inputs, lambda x, index: torch.from_numpy(x.numpy().astype("float32")))
    with pytest.raises(WorkloadError, match=r"returned 'out' as torch\.float32 for inputs in torch\.float64"):
        rounds.reference(rounds.make_inputs(0, "cpu", planted=False))


def gradient_of_softmax(x: torch.Tensor, dout: torch.Tensor) -> torch.Tensor:
    """dx of sum(softmax(x) * dout), by autograd."""
    x.requires_grad_()
    (dx,) = torch.autograd.grad((torch.softmax(x, -1) * dout).sum(), x)
    return dx


def make_x_and_dout(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """x and dout (64, 32) in f16."""
    generator = torch.Generator().manual_seed(seed)
    x, dout = (torch.randn(64, 32, generator=generator).half() for _ in range(2))
    return x, dout


@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_a_reference_may_take_gradients(around: Any) -> None:
    """A reference that differentiates works in every grad mode of the caller, and what comes back is detached."""
    workload = AdHoc("x", make_x_and_dout, gradient_of_softmax)
    with around():
        inputs = workload.make_inputs(0, "cpu", planted=False)
        outputs = [compute(inputs)["out"] for compute in (workload.reference, workload.plain)]
    x, dout = (tensor.double() for tensor in inputs)
    weights = torch.softmax(x, -1)
    expected = weights * (dout - (weights * dout).sum(-1, keepdim=True))
    torch.testing.assert_close(outputs[0], expected, rtol=0, atol=1e-14)
    assert [output.dtype for output in outputs] == [torch.float64, torch.float16]
    assert not any(output.requires_grad for output in (*outputs, *inputs))


def test_a_function_that_takes_gradients_is_judged() -> None:
    """A function under judgement may differentiate too: a right gradient passes, one without its mean term does not."""

    def forgets_the_sum(x: torch.Tensor, dout: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1) * dout

    workload = AdHoc("x", make_x_and_dout, gradient_of_softmax)
    assert judged(lambda x, dout: gradient_of_softmax(x.detach(), dout), workload) == ()
    assert "is off by" in judged(forgets_the_sum, workload)[0]


def test_inputs_that_require_gradients_are_detached() -> None:
    """A function may make leaves that require gradients; the workload's inputs do not."""
    workload = AdHoc("x", lambda: torch.randn(4, requires_grad=True), lambda x: x.exp())
    inputs = workload.make_inputs(0, "cpu", planted=False)
    assert not inputs[0].requires_grad
    assert not CallableBackend("mine", torch.exp).prepare(workload, inputs).run().requires_grad


def packed(seed: int) -> tuple[torch.Tensor, ...]:
    """x (64, 32), transposed; y, every second column of a wider tensor; z, one row expanded to 64."""
    generator = torch.Generator().manual_seed(seed)
    x, y, z = (torch.randn(shape, generator=generator).half() for shape in ((32, 64), (64, 64), (1, 32)))
    return x.t(), y[:, ::2], z.expand(64, 32)


def test_inputs_may_have_any_strides() -> None:
    """Transposed, strided and expanded inputs reach reference and function with the right values, and are unchanged."""
    workload = AdHoc("x", packed, lambda x, y, z: torch.softmax(x, -1) * y + z)
    inputs = workload.make_inputs(0, "cpu", planted=False)
    assert [tensor.is_contiguous() for tensor in inputs] == [False] * 3
    before = [tensor.clone() for tensor in inputs]
    x, y, z = (tensor.double() for tensor in inputs)
    assert torch.equal(workload.reference(inputs)["out"], torch.softmax(x, -1) * y + z)
    assert judged(lambda x, y, z: (torch.softmax(x.float(), -1) * y + z).half(), workload) == ()
    assert judged(lambda x, y, z: (torch.softmax(x.float(), -1) * y - z).half(), workload) != ()
    changes = AdHoc("x", packed, lambda x, y, z: x.mul_(2) + y.mul_(2) + z.mul_(2))
    changes.reference(inputs)
    changes.plain(inputs)
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True))


def test_a_reference_that_gives_no_tensor_is_refused() -> None:
    """What is no tensor is named by its type, and what a reference may return is said."""
    workload = AdHoc("x", make_inputs, lambda x, index: (x, "three"))
    inputs = workload.make_inputs(0, "cpu", planted=False)
    for compute in (workload.reference, workload.plain):
        with pytest.raises(
            WorkloadError, match=r"the reference of 'x' returned a str for 'out1'; it must return a tensor"
        ):
            compute(inputs)


def test_a_call_is_timed_hot_unless_it_says_otherwise() -> None:
    """A cold one says so where baselines see it; another word is refused with those that exist."""
    assert WORKLOAD.cache_state == "hot"
    assert "cache_state" not in WORKLOAD.definition()
    cold = AdHoc("x", make_inputs, take_rows, cache_state="cold")
    assert cold.definition()["cache_state"] == "cold"
    with pytest.raises(UsageError, match=r"cache_state of 'x' must be one of hot, cold, got 'tepid'"):
        AdHoc("x", make_inputs, take_rows, cache_state="tepid")


def test_outputs_that_may_be_infinite_are_named() -> None:
    """None by default, and then the definition is what it always was; names given are stored in it."""
    assert WORKLOAD.non_finite_outputs == frozenset()
    assert "non_finite_outputs" not in WORKLOAD.definition()
    named = AdHoc("x", make_inputs, take_rows, non_finite_outputs=frozenset({"lse", "dq"}))
    assert named.definition()["non_finite_outputs"] == ["dq", "lse"]


@pytest.mark.parametrize(
    "dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz], ids=str
)
def test_fp8_inputs_reach_the_reference_upcast(dtype: torch.dtype) -> None:
    """Every fp8 dtype counts as floating point: fp64 for the reference, as it is for plain."""
    inputs = (torch.randn(4, 4).to(dtype),)
    workload = AdHoc("x", lambda: inputs, lambda x: x if x.dtype == torch.float64 else x.bfloat16())
    assert torch.equal(workload.reference(inputs)["out"], inputs[0].double())
    assert workload.plain(inputs)["out"].dtype == torch.bfloat16


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
    assert list(name_outputs(tensor)) == ["out"]
    assert list(name_outputs((tensor, tensor))) == ["out0", "out1"]
    assert list(name_outputs({"dq": tensor})) == ["dq"]


def test_incoming_gradients_are_not_the_inputs_again() -> None:
    """A function that draws its inputs from torch's generator would else see its own first input come back."""
    workload = AdHoc("silu", lambda: torch.randn(64, 32), torch.nn.functional.silu, times="both")
    x, incoming = workload.make_inputs(3, "cpu", planted=False)
    assert x.shape == incoming.shape
    assert abs(float(torch.corrcoef(torch.stack((x.flatten(), incoming.flatten())))[0, 1])) < 0.1


def test_outputs_that_the_reference_does_not_name_are_named_in_a_note() -> None:
    """Nobody judges them, and the reader is told."""
    workload = AdHoc("sums", lambda: torch.randn(64, 32), lambda x: {"out": x * 2})
    backend = CallableBackend("mine", lambda x: {"out": x * 2, "lse": x.sum(-1), "largest": x.amax(-1)})
    prepared = backend.prepare(workload, workload.make_inputs(0, "cpu", planted=False))
    judge = Judge(prepared, workload, references=References(), tolerance=backend.tolerance, device="cpu")
    report = judge.check_call("check", prepared.run, seed=1, planted=True)
    assert report.problems == ()
    assert report.notes == ("not judged, because the reference does not name it: 'largest', 'lse'",)


@pytest.mark.parametrize("only_cpu", [True, False])
def test_where_nothing_but_the_cpu_draws_no_other_device_is_seeded(
    only_cpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers are the same, and other devices get their seed where there is one."""
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: not only_cpu)
    adhoc._only_cpu.cache_clear()
    try:
        (made,) = AdHoc("a", lambda: torch.randn(8), torch.relu).make_inputs(3, "cpu", planted=False)
    finally:
        adhoc._only_cpu.cache_clear()
    assert torch.equal(made, torch.randn(8, generator=torch.Generator().manual_seed(3)))
    assert seeded == ([] if only_cpu else [3])
