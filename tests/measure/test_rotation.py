"""Kernels that remember their results are fast only while their inputs stay the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pytest_attnperf.backends import Prepared, Tensors
from pytest_attnperf.measure.rotation import rotate
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import DeviceInfo, NotProvenRightError
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend

SIZE = 128


def make_inputs(seed: int) -> Tensors:
    """x and w, different for each seed."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(SIZE, SIZE, generator=generator) for _ in range(2))


def work(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Some hundreds of microseconds."""
    for _ in range(4):
        x = torch.tanh(x @ w)
    return x


def remembering() -> Callable[..., torch.Tensor]:
    """The same, but for inputs whose first element was seen before."""
    known: dict[float, torch.Tensor] = {}

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        key = float(x[0, 0])
        if key not in known:
            known[key] = work(x, w)
        return known[key].clone()

    return call


def prepared(call: Callable[..., torch.Tensor]) -> Prepared:
    """Bound to inputs of their own."""
    return Prepared(call, make_inputs(99), lambda new: new, lambda raw: {"out": raw})


def test_an_honest_call_takes_as_long_on_inputs_that_change() -> None:
    """On an idle machine the two agree; the limit leaves room for a busy one."""
    rotation = rotate(prepared(work), "cpu", block_us=2000.0, call_us=300.0)
    assert rotation.turn_us > 0
    assert rotation.rotating_us < 3 * rotation.same_us


def test_a_call_that_remembers_shows() -> None:
    """However many results it holds, change costs it the work that it saved on inputs that stay the same."""
    rotation = rotate(prepared(remembering()), "cpu", block_us=2000.0, call_us=300.0)
    assert rotation.rotating_us > 4 * rotation.same_us


def test_the_timed_inputs_are_left_alone() -> None:
    """What is rotated is a copy: the case may be timed further."""
    own = prepared(work)
    rotate(own, "cpu", block_us=200.0, call_us=100.0)
    assert all(torch.equal(now, then) for now, then in zip(own.tensors, make_inputs(99), strict=True))


def test_a_subject_rotates_only_what_was_proven() -> None:
    """No time without a passing check; afterwards there are two."""
    workload = AdHoc("tanh", make_inputs, work)
    subject = TorchSubject(
        CallableBackend("test.work", work), workload, DeviceInfo("cpu", "cpu-x86_64", "test"), Seeds(0, 1, 2)
    )
    subject.prepare()
    with pytest.raises(NotProvenRightError):
        subject.rotated(500.0)
    assert subject.check().right
    subject.blocks(3, 500.0, 1e6)
    rotation = subject.rotated(500.0)
    assert rotation.same_us > 0
    assert subject.finish().check.right


@pytest.mark.gpu
def test_a_graph_holds_the_rotation() -> None:
    """A captured graph changes its inputs in every replay, and an honest call takes as long."""
    inputs = tuple(tensor.cuda() for tensor in make_inputs(99))
    on_gpu = Prepared(work, inputs, lambda new: new, lambda raw: {"out": raw})
    rotation = rotate(on_gpu, "cuda", block_us=100.0, call_us=50.0)
    assert rotation.rotating_us < 2 * rotation.same_us


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16, torch.int8, torch.float64])
def test_every_dtype_can_be_rotated(dtype: torch.dtype) -> None:
    """Bits are moved, so that no dtype needs arithmetic."""
    inputs = tuple(tensor.to(dtype) for tensor in make_inputs(1))
    own = Prepared(lambda x, w: x.float() @ w.float(), inputs, lambda new: new, lambda raw: {"out": raw})
    assert rotate(own, "cpu", block_us=200.0, call_us=100.0).same_us > 0
