"""Functions that mistake how their inputs lie in memory, or write beside them, gated; and honest twins that pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_attnperf.backends import Side
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import CheckReport, DeviceInfo
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend
from pytest_attnperf.workloads.input_memory import copy_guarded

CPU = DeviceInfo("cpu", "cpu-x86_64", "test", interpreted=True)
Tensors = tuple[torch.Tensor, ...]


def checked(fn: Callable[..., Any], inputs: Any, reference: Any, seed: int = 1, **settings: Any) -> CheckReport:
    """What is said of a function."""
    workload = AdHoc("x", inputs, reference, **settings)
    subject = TorchSubject(CallableBackend("mine", fn), workload, CPU, Seeds(timed=0, check=seed, final=seed + 1))
    subject.prepare()
    report = subject.check()
    if report.right:
        report = report.merge_with(subject.finish().check)
    return report


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Over rows, in the type of x."""
    return torch.softmax(x, -1)


def taken_for_contiguous(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function of what lies in memory from the first element of each input on."""

    def kernel(*tensors: torch.Tensor) -> Any:
        strides = ([math.prod(x.shape[dim + 1 :]) for dim in range(x.dim())] for x in tensors)
        return fn(*(x.as_strided(x.shape, stride) for x, stride in zip(tensors, strides, strict=True)))

    return kernel


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Of one head."""
    return torch.softmax(q @ k.mT / 8, -1) @ v


LAYOUTS: dict[str, tuple[Callable[[], Any], Callable[..., Any]]] = {
    "transposed": (lambda: torch.randn(256, 264).t(), softmax),
    "every second column": (lambda: torch.randn(264, 512)[:, ::2], softmax),
    "columns of a wider tensor": (lambda: torch.randn(264, 296)[:, 8:264], softmax),
    "behind the first element": (lambda: torch.randn(256 * 264 + 1)[1:].view(256, 264).t(), softmax),
    "expanded rows": (lambda: (torch.randn(4, 24), torch.randn(1, 24).expand(4, 24)), lambda x, y: softmax(x + y)),
    "windows": (lambda: torch.randn(100).unfold(0, 8, 4), softmax),
    "slices of one qkv": (lambda: torch.randn(264, 3 * 256).split(256, -1), attention),
    "views of one kv": (lambda: (torch.randn(1024, 64), *torch.randn(50, 2, 64).unbind(1)), attention),
}
"""Inputs that do not lie as dense ones do, and what is computed of them; most are so large that one draw of the
reference makes a budget."""


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_kernel_that_takes_its_inputs_for_contiguous_is_incorrect(layout: str) -> None:
    """Strides, gaps and expanded dimensions reach the call as they are, and a kernel that heeds them is right."""
    inputs, fn = LAYOUTS[layout]
    assert checked(fn, inputs, fn).problems == ()
    problems = checked(taken_for_contiguous(fn), inputs, fn).problems
    assert any("is off by" in problem or "NaN" in problem for problem in problems)


def k_and_v(seed: int) -> Tensors:
    """q, and one tensor as k and as v."""
    kept = torch.randn(50, 64)
    return torch.randn(1024, 64), kept, kept


@pytest.mark.parametrize("seed", range(5))
def test_inputs_may_be_one_tensor(seed: int) -> None:
    """k and v that are the same tensor stay so in every check, and are planted once."""
    assert checked(attention, k_and_v, attention, seed).problems == ()
    workload = AdHoc("x", k_and_v, attention)
    _, k, v = workload.make_inputs(seed, "cpu", planted=True)
    assert workload.unplanted == ""
    assert k.data_ptr() == v.data_ptr()
    prepared = CallableBackend("mine", attention).prepare(workload, (k, k, v))
    assert len({tensor.data_ptr() for tensor in prepared.tensors}) == 1


def test_a_kernel_that_takes_k_and_v_for_memory_of_their_own_is_incorrect() -> None:
    """One that scales k in place, and v back afterwards, is right as long as they are not one tensor."""

    def scales_k(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        k /= 8
        out = torch.softmax(q @ k.mT, -1) @ v
        k *= 8
        return out

    apart = checked(scales_k, lambda: tuple(torch.randn(size, 64) for size in (1024, 50, 50)), attention)
    assert apart.problems == ()
    assert any("is off by" in problem for problem in checked(scales_k, k_and_v, attention).problems)


def test_inputs_that_share_memory_for_some_seeds_only_are_refused() -> None:
    """Inputs of another seed that do not fit into the memory of the first are an error of inputs(), which says so."""

    def inputs(seed: int) -> Tensors:
        return k_and_v(seed) if seed == 0 else tuple(torch.randn(size, 64) for size in (1024, 50, 50))

    with pytest.raises(Exception, match="shares memory with another tensor, for one seed but not for another"):
        checked(attention, inputs, attention)


def writes(*, before: int = 0, behind: int = 0, gap: int = 0) -> Callable[[torch.Tensor], torch.Tensor]:
    """Softmax that also writes so many elements before, behind, or behind the first row of its input."""

    def kernel(x: torch.Tensor) -> torch.Tensor:
        out, start = torch.softmax(x, -1), x.storage_offset()
        for first, count in ((start - before, before), (start + x.numel(), behind), (start + x.shape[1], gap)):
            if count:
                x.as_strided((count,), (1,), first).zero_()
        return out

    return kernel


@pytest.mark.parametrize(
    ("kernel", "inputs", "place"),
    [
        (writes(behind=1), lambda: torch.randn(260, 256), "0 behind tensor 0"),
        (writes(behind=16), lambda: torch.randn(260, 256).bfloat16(), "0 behind tensor 0"),
        (writes(before=2), lambda: torch.randn(262, 256)[2:], "0 before tensor 0"),
        (writes(gap=3), lambda: torch.randn(260, 272)[:, :256], "around tensor 0"),
    ],
)
def test_a_kernel_that_writes_beside_an_input_is_incorrect(kernel: Any, inputs: Any, place: str) -> None:
    """Memory before, between and behind inputs is compared, too, and the text says which has changed."""
    assert checked(softmax, inputs, softmax).problems == ()
    problems = checked(kernel, inputs, softmax).problems
    assert any("wrote to memory that is no input's" in problem and place in problem for problem in problems)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16, torch.float64, torch.int64, torch.bool])
def test_copies_lie_as_their_originals(dtype: torch.dtype) -> None:
    """Shape, strides, values, alignment and what is shared are those of the originals."""
    base = torch.ones(1000).to(dtype)
    originals = (base[3:63].view(6, 10), base[5:17], base[:6].expand(4, 6), torch.ones(0), base[100:101])
    copies, beside = copy_guarded(originals)
    for one, other in zip(originals, copies, strict=True):
        assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)
        assert torch.equal(one.float(), other.float())
        assert one.data_ptr() % 64 == other.data_ptr() % 64
    assert copies[1].data_ptr() - copies[0].data_ptr() == 2 * dtype.itemsize
    assert [(each.side, each.what) for each in beside] == [(Side.AROUND, "tensors 0, 1, 2, 4")]
