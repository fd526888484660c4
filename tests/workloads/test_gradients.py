from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_attnperf.correctness.poison import is_bit_equal
from pytest_attnperf.errors import CaseFailedError, WorkloadError
from pytest_attnperf.workloads import gradients
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend
from pytest_attnperf.workloads.gradients import Withheld


def scaled(x: torch.Tensor, w: torch.Tensor, index: torch.Tensor) -> dict[str, torch.Tensor]:
    """Two outputs, one without a gradient."""
    return {"out": torch.tanh(x)[index] * w, "place": index.argmax()}


def make_inputs(seed: int) -> tuple[torch.Tensor, ...]:
    """x (8, 40), w (40,), index (8,)."""
    return torch.randn(8, 40), torch.randn(40), torch.arange(8).flip(0)


def test_gradients_are_those_of_autograd() -> None:
    """Outputs and gradients by name, detached; integers have none, and the inputs' memory is read where it lies."""
    x, w, index = make_inputs(0)
    dout = torch.randn(8, 40)
    found = gradients.run_backward(gradients.record_graph(scaled, (x, w, index), [dout]), ("x", "w", "index"))
    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(torch.tanh(leaf)[index] * w, leaf, dout)
    assert list(found) == ["out", "place", "grad_x", "grad_w"]
    torch.testing.assert_close(found["grad_x"], expected)
    assert not any(tensor.requires_grad for tensor in (*found.values(), x))


def test_an_input_that_no_output_depends_on_has_no_gradient() -> None:
    """As the teacher's logits of a distillation loss, on both sides alike."""
    graph = gradients.record_graph(lambda x, y: x * y.detach(), (torch.ones(3), torch.ones(3)), None)
    assert list(gradients.run_backward(graph, ("x", "y"))) == ["out", "grad_x"]


@pytest.mark.parametrize(
    ("function", "incoming", "says"),
    [
        (lambda x: x.detach() * 2, None, r"none of the outputs \(out\) depends on the inputs"),
        (
            lambda x: (x * 2, x * 3),
            [torch.ones(3)],
            r"2 outputs have gradients \(out0, out1\), but the reference has 1",
        ),
        (lambda x: x[:2] * 2, [torch.ones(3)], r"output 'out' has shape \(2,\), that of the reference \(3,\)"),
    ],
)
def test_what_cannot_be_sent_back_is_said(function: Any, incoming: Any, says: str) -> None:
    """No gradient at all, other outputs than the reference's, another shape."""
    with pytest.raises(CaseFailedError, match=says):
        gradients.record_graph(function, (torch.ones(3),), incoming)


@pytest.mark.parametrize(
    ("function", "count", "names"),
    [
        (lambda x, w: x, 2, ("x", "w")),
        (lambda x, *rest: x, 3, ("x", "input1", "input2")),
        (lambda *tensors: tensors, 2, ("input0", "input1")),
        (torch.tanh, 1, ("input0",)),
        (lambda x, eps=1e-6: x, 1, ("x",)),
    ],
)
def test_inputs_are_named_by_the_reference(function: Any, count: int, names: tuple[str, ...]) -> None:
    """By its parameters; by their number where it has none for them."""
    assert gradients.input_names(function, count) == names


def test_incoming_gradients_are_inputs() -> None:
    """Of the outputs' shapes and dtypes behind the function's own inputs: drawn by seed, another for another seed."""
    workload = AdHoc("x", make_inputs, lambda x, w, index: (x * w, x.sum()), times="both")
    *own, dout, dsum = workload.make_inputs(1, "cpu", planted=False)
    assert (len(own), dout.shape, dsum.shape) == (3, (8, 40), ())
    assert workload.input_names == ("x", "w", "index", "grad_out0", "grad_out1")
    assert float(dsum) == 1.0
    assert torch.equal(dout, workload.make_inputs(1, "cpu", planted=False)[3])
    assert not torch.equal(dout, workload.make_inputs(2, "cpu", planted=False)[3])
    assert float(workload.make_inputs(1, "cpu", planted=True)[4]) != 1.0


class InPlaceSwiglu(torch.autograd.Function):
    """As Liger's: backward writes both gradients over what forward has kept."""

    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Keeps both."""
        ctx.save_for_backward(a, b)
        return F.silu(a) * b

    @staticmethod
    def backward(ctx: Any, *incoming: torch.Tensor) -> Any:
        """Over a and b."""
        a, b = ctx.saved_tensors
        gate = torch.sigmoid(a)
        da, db = incoming[0] * b * gate * (1 + a * (1 - gate)), incoming[0] * a * gate
        return a.copy_(da), b.copy_(db)


@pytest.mark.parametrize("times", gradients.PASSES)
def test_what_a_call_may_overwrite_is_given_anew(times: str) -> None:
    """Each call works on copies, made before it; the inputs themselves stay as they were loaded."""
    workload = AdHoc(
        "x", lambda: make_inputs(0)[:1] * 2, lambda a, b: F.silu(a) * b, times=times, overwrites=("a", "b")
    )
    inputs = workload.make_inputs(0, "cpu", planted=False)
    prepared = CallableBackend("mine", InPlaceSwiglu.apply).prepare(workload, inputs)
    first = prepared.outputs(prepared.run())
    again = prepared.outputs(prepared.run())
    assert list(first) == (["out"] if times == "forward" else ["out", "grad_a", "grad_b"])
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert all(torch.equal(own, given) for own, given in zip(prepared.tensors, inputs, strict=True))
    assert prepared.setup is not None


def test_incoming_gradients_may_be_named_for_a_forward_pass() -> None:
    """One list of names serves all three cases of a kernel; a name that exists in none of them is refused."""
    for times in gradients.PASSES:
        workload = AdHoc("x", lambda: make_inputs(0)[0], torch.tanh, times=times, overwrites=("grad_out",))
        workload.make_inputs(0, "cpu", planted=False)
    workload = AdHoc("x", lambda: make_inputs(0)[0], torch.tanh, times="forward", overwrites=("dout",))
    with pytest.raises(WorkloadError, match="in_place of 'x' names 'dout'; the inputs are input0"):
        workload.make_inputs(0, "cpu", planted=False)


def test_a_call_that_returns_nothing_is_judged_by_what_it_overwrites() -> None:
    """In the order of the inputs; the reference may write in place as well, or return the same."""

    def add_and_norm(x: torch.Tensor, residual: torch.Tensor) -> None:
        residual.add_(x)
        x.copy_(torch.tanh(residual))

    for reference in (add_and_norm, lambda x, residual: (torch.tanh(x + residual), x + residual)):
        workload = AdHoc("x", lambda: make_inputs(0)[:1] * 2, reference, overwrites=("x", "residual"))
        inputs = workload.make_inputs(0, "cpu", planted=False)
        prepared = CallableBackend("mine", add_and_norm).prepare(workload, inputs)
        found, truth = prepared.outputs(prepared.run()), workload.reference(inputs)
        assert list(found) == list(truth) == ["out0", "out1"]
        torch.testing.assert_close(found["out1"].double(), truth["out1"])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.complex64])
def test_other_values_of_the_same_size_lie_there_meanwhile(dtype: torch.dtype) -> None:
    """Every element is another one, the root mean square about the same, and every bit is back afterwards, also
    where the forward pass fails."""
    tensors = ((torch.randn(64, 64) * 1e-3).to(dtype), torch.ones((), dtype=dtype))
    before = tuple(tensor.clone() for tensor in tensors)
    withheld = Withheld(tensors)
    with pytest.raises(ZeroDivisionError), withheld.hide(tensors):
        assert (tensors[0] != before[0]).float().mean() > 0.9
        assert tensors[1] != before[1]
        ratio = tensors[0].abs().double().square().mean() / before[0].abs().double().square().mean()
        assert 0.4 < ratio < 1.2
        _ = 1 / 0
    assert all(map(is_bit_equal, tensors, before))
    with withheld.hide(tensors):
        assert not is_bit_equal(tensors[0], before[0])
    assert all(map(is_bit_equal, tensors, before))


def test_nobodys_random_numbers_are_drawn_from() -> None:
    """A function's dropout is what it would be."""
    torch.manual_seed(3)
    state = torch.get_rng_state()
    with Withheld((torch.ones(4),)).hide((torch.ones(4),)):
        pass
    assert torch.equal(state, torch.get_rng_state())
