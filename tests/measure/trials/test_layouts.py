"""Layouts: kernels that mistake strides, and twins that heed or refuse them; what each layout is in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from pytest_attnperf.backends import Backend, Prepared
from pytest_attnperf.measure.proving import Prover
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.measure.trials import TrialCase, layouts
from pytest_attnperf.measure.trials.layouts import INT32_END, LAYOUTS
from pytest_attnperf.records import CheckReport, DeviceInfo
from pytest_attnperf.records.trials import TrialEnding, TrialResult
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend
from pytest_attnperf.workloads.softmax import Softmax

CPU = DeviceInfo("cpu", "cpu-x86_64", "test", interpreted=True)
SHAPE = (3, 16, 2, 8)


def tried(backend: Backend, workload: Any) -> CheckReport:
    """What is said of a backend that is right as it is, after the layouts."""
    subject = TorchSubject(backend, workload, CPU, Seeds(timed=0, check=1, final=2))
    subject.prepare()
    assert subject.check().problems == ()
    return subject.finish(trials=("layouts",)).check


def endings(fn: Callable[..., Any], **settings: Any) -> dict[str, TrialEnding]:
    """Layout -> how it ended for a function of three inputs."""
    report = tried(CallableBackend("mine", fn), AdHoc("x", qkv, attention, **settings))
    return {result.variant: result.ending for result in report.trials}


def qkv() -> tuple[torch.Tensor, ...]:
    """Inputs of a small attention."""
    return tuple(torch.randn(SHAPE) for _ in range(3))


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Over (batch, rows, heads, head size)."""
    weights = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k) / 3, -1)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v)


def taken_for_contiguous(*tensors: torch.Tensor) -> torch.Tensor:
    """Attention of what lies in memory from the first element of each input on."""
    return attention(*(x.as_strided(x.shape, (256, 16, 8, 1)) for x in tensors))


def refuses(*tensors: torch.Tensor) -> torch.Tensor:
    """Attention of contiguous inputs only."""
    assert all(x.is_contiguous() for x in tensors), "takes contiguous inputs"
    return attention(*tensors)


def counts_in_int32(*tensors: torch.Tensor) -> torch.Tensor:
    """Attention that computes the place of each batch entry in a signed integer of 32 bits."""

    def wrap(x: torch.Tensor) -> torch.Tensor:
        places = [(number * x.stride(0) + INT32_END) % (2 * INT32_END) - INT32_END for number in range(x.shape[0])]
        rest = x.shape[1:], x.stride()[1:]
        return torch.stack([x.as_strided(*rest, x.storage_offset() + place) for place in places])

    return attention(*map(wrap, tensors))


def loads_aligned(*tensors: torch.Tensor) -> torch.Tensor:
    """Attention whose loads clear the last bits of an address."""
    floors = (x.storage_offset() - x.data_ptr() % 16 // 4 for x in tensors)
    return attention(*(x.as_strided(x.shape, x.stride(), floor) for x, floor in zip(tensors, floors, strict=True)))


def result_without_batch(*tensors: torch.Tensor) -> torch.Tensor:
    """Attention whose result of an empty batch has one entry."""
    return attention(*tensors) if tensors[0].numel() else torch.zeros(1, *SHAPE[1:])


def test_a_kernel_that_heeds_strides_is_right_in_every_layout() -> None:
    """Also beyond 2^31 elements, and on an empty batch."""
    assert set(endings(attention).values()) == {TrialEnding.RIGHT}


def test_a_kernel_that_takes_inputs_for_contiguous_is_wrong_where_they_are_not() -> None:
    """It is right on inputs that only begin one element on, and on an empty batch."""
    found = endings(taken_for_contiguous)
    assert found.pop("one element on") is TrialEnding.RIGHT
    assert found.pop("empty") is TrialEnding.RIGHT
    assert set(found.values()) == {TrialEnding.WRONG}


def test_a_kernel_that_refuses_a_layout_is_not_wrong() -> None:
    """An error instead of a wrong result passes, and its text is kept."""
    report = tried(CallableBackend("mine", refuses), AdHoc("x", qkv, attention))
    assert report.problems == ()
    refused = {result.variant: result.why for result in report.trials if result.ending is TrialEnding.REFUSED}
    assert "sliced" in refused
    assert set(refused.values()) == {"AssertionError: takes contiguous inputs"}


@pytest.mark.parametrize(
    ("fn", "layout"),
    [(counts_in_int32, "beyond 2^31"), (loads_aligned, "one element on"), (result_without_batch, "empty")],
)
def test_each_fault_shows_in_its_layout(fn: Callable[..., Any], layout: str) -> None:
    """Places in 32 bits, loads that need 16 bytes, and an empty batch, which no other layout shows."""
    found = endings(fn)
    assert found.pop(layout) is TrialEnding.WRONG
    assert TrialEnding.WRONG not in found.values()


def test_contiguous_inputs_only_can_be_said() -> None:
    """`contiguous=True` tries no other layout, and the result says why."""
    report = tried(CallableBackend("mine", taken_for_contiguous), AdHoc("x", qkv, attention, contiguous=True))
    assert report.problems == ()
    layouts = [result for result in report.trials if result.variant in LAYOUTS]
    assert {result.ending for result in layouts} == {TrialEnding.LEFT_OUT}
    assert {result.why for result in layouts} == {"the test says contiguous=True"}


class DoubleOfDense(torch.autograd.Function):
    """2 x, whose backward pass takes the incoming gradient for contiguous."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Double."""
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        """Double what lies in memory from the first element on."""
        (given,) = gradients
        return given.as_strided(given.shape, (512, 16, 8, 1)[-given.dim() :]) * 2


@pytest.mark.parametrize("times", ["both", "forward", "backward"])
def test_an_incoming_gradient_lies_otherwise_too(times: str) -> None:
    """A backward pass that takes it for contiguous is wrong; torch's own is right."""
    settings: dict[str, Any] = {"times": times}
    make = lambda: torch.randn(3, 32, 2, 8)  # noqa: E731
    wrong = tried(CallableBackend("mine", DoubleOfDense.apply), AdHoc("x", make, lambda x: x * 2, **settings))
    honest = tried(CallableBackend("mine", lambda x: x * 2), AdHoc("x", make, lambda x: x * 2, **settings))
    assert any(result.ending is TrialEnding.WRONG for result in wrong.trials) == (times != "forward")
    assert honest.problems == ()


def as_if_contiguous(x: torch.Tensor) -> torch.Tensor:
    """What lies in memory from the first element of a matrix on."""
    return x.as_strided(x.shape, (x.shape[-1], 1))


@dataclass(frozen=True)
class SoftmaxOfRows(Backend[Softmax]):
    """Softmax of an op family, of inputs as they lie, of a copy, or of what is taken for contiguous; counts calls."""

    families = ("softmax",)
    how: str = "as they lie"
    calls: list[int] = field(default_factory=list)

    def prepare(self, workload: Softmax, inputs: Any) -> Prepared:
        """Returns the call on inputs that it converts, or not."""

        def call(x: torch.Tensor) -> torch.Tensor:
            self.calls.append(x.stride(-1))
            return torch.softmax(as_if_contiguous(x) if self.how == "contiguous" else x, -1)

        def convert(given: Any) -> Any:
            if self.how == "copy":
                return tuple(x.clone(memory_format=torch.contiguous_format) for x in given)
            if self.how == "copy of what is taken for contiguous":
                return tuple(as_if_contiguous(x).clone() for x in given)
            return given

        return Prepared(call=call, tensors=convert(inputs), convert=convert, outputs=lambda raw: {"out": raw})


@pytest.mark.parametrize(
    ("how", "ending"),
    [
        ("as they lie", TrialEnding.RIGHT),
        ("copy", TrialEnding.COPIED),
        ("contiguous", TrialEnding.WRONG),
        ("copy of what is taken for contiguous", TrialEnding.WRONG),
    ],
)
def test_an_op_familys_backend_is_prepared_with_inputs_that_lie_otherwise(how: str, ending: TrialEnding) -> None:
    """A layout that `convert` copies away is told as such: the kernel never saw it."""
    report = tried(SoftmaxOfRows("mine", how=how), Softmax(rows=24, columns=40, dtype="f32"))
    found = {result.variant: result for result in report.trials}
    assert found["sliced"].ending is ending
    assert found["last stride 2"].ending is ending
    left = TrialResult("layouts", "transposed", TrialEnding.LEFT_OUT, "no input can lie that way")
    assert found["transposed"] == left


@pytest.mark.parametrize(("how", "least", "most"), [("copy", 0, 0), ("as they lie", 4, 100)])
def test_a_kernel_is_not_called_again_on_copies_of_the_same_bits(how: str, least: int, most: int) -> None:
    """A call that differs in nothing shows nothing; in layouts that the call sees it is made."""
    backend, workload = SoftmaxOfRows("mine", how=how), Softmax(rows=24, columns=40, dtype="f32")
    prepared = backend.prepare(workload, workload.make_inputs(0, "cpu", planted=False))
    case = TrialCase(Prover(backend, workload, CPU, Seeds(timed=0, check=1, final=2)), prepared)
    found = [tried.result.ending for tried in layouts.run_trial(case)]
    assert found.count(TrialEnding.COPIED if how == "copy" else TrialEnding.RIGHT) == 5
    assert least <= len(backend.calls) <= most


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_has_the_values_and_another_place(layout: str) -> None:
    """Every input of several dimensions is moved, has its values, and memory between them is not readable as values."""
    given = (*qkv(), torch.arange(48, dtype=torch.int32).view(3, 16), torch.tensor(2.0))
    laid = LAYOUTS[layout](given)
    assert all(torch.equal(new, old) for new, old in zip(laid, given, strict=True))
    q = laid[0]
    assert {
        "fused": q.stride() == (16 * 48, 48, 8, 1) and laid[1].storage_offset() == 16,
        "transposed": q.stride() == (256, 8, 128, 1),
        "sliced": q.stride() == (512, 32, 16, 1),
        "one element on": q.storage_offset() == 1,
        "last stride 2": q.stride(-1) == 2,
        "beyond 2^31": q.stride(0) * 2 >= INT32_END and q.storage_offset() >= INT32_END,
    }[layout]
    assert laid[-1] is given[-1]
