from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels.native.prefill import BACKENDS
from pytest_attnperf.backends import Prepared
from pytest_attnperf.measure import single_run
from pytest_attnperf.measure.single_run import SingleRun
from pytest_attnperf.measure.timers.capture import CaptureFailedError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.families import parse_workload

WORKLOAD = parse_workload("prefill-b1-s16-h1-d16-f32")
BACKEND = BACKENDS[0]


def case(kind: str = "cpu") -> SingleRun:
    """A backend on a device of this kind."""
    return SingleRun(BACKEND, WORKLOAD, DeviceInfo(kind, "arch", "product"))


def counting(events: list[str]) -> Prepared:
    """A call that is written down."""
    return Prepared(lambda: events.append("call"), (), lambda new: new, lambda out: {})


def test_a_check_leaves_the_inputs_in_place() -> None:
    """A right backend is found right, and what it is called on afterwards is what it was prepared with."""
    single = SingleRun.make_here(BACKEND, WORKLOAD, on_gpu=False, interpreted=True)
    prepared = single.prepare()
    before = [tensor.clone() for tensor in prepared.tensors]
    assert single.check(prepared).right
    assert all(torch.equal(old, new) for old, new in zip(before, prepared.tensors, strict=True))


def test_on_a_cpu_nothing_is_waited_for() -> None:
    """Without a GPU there is no range and no launch, only the calls."""
    events: list[str] = []
    case().repeat(counting(events), 1, 2)
    assert events == ["call"] * 3
    assert case().read_launches(counting(events)) == ((), "on a CPU nothing is launched")


@pytest.mark.parametrize("has_nvtx", [True, False])
def test_the_range_holds_the_calls_alone(monkeypatch: pytest.MonkeyPatch, *, has_nvtx: bool) -> None:
    """The device is idle where the range begins and where it ends; a torch without NVTX runs the same calls."""
    events: list[str] = []

    def push(name: str) -> None:
        if not has_nvtx:
            raise RuntimeError("NVTX functions not installed")
        events.append(f"push {name}")

    nvtx: Any = SimpleNamespace(range_push=push, range_pop=lambda: events.append("pop"))
    monkeypatch.setattr(single_run.importlib, "import_module", lambda name: nvtx)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: events.append("wait"))
    case("cuda").repeat(counting(events), 1, 2)
    inside = ["call", "call", "wait"]
    ranged = ["push attnperf", *inside, "pop"] if has_nvtx else inside
    assert events == ["wait", "call", "wait", "wait", *ranged]


def test_a_call_that_cannot_be_captured_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no graph can be made, launches are not known, and the reason is given."""

    def refused(call: Any, stream: Any) -> None:
        raise CaptureFailedError("the call synchronises with the host")

    monkeypatch.setattr(single_run, "side_stream", lambda: None)
    monkeypatch.setattr(single_run, "warm_up_for_capture", refused)
    assert case("cuda").read_launches(counting([])) == ((), "the call synchronises with the host")
