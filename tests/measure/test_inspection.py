"""A subject that runs other work than its backend declares is not timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pytest_attnperf.backends import Backend, Declares, Prepared, Tensors
from pytest_attnperf.measure import ran_code, timing, trace
from pytest_attnperf.measure.graph_nodes import GraphContent
from pytest_attnperf.measure.inspection import OtherWorkError
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import DeviceInfo, Launch, NotProvenRightError, Tolerance
from pytest_attnperf.workloads.adhoc import AdHoc
from pytest_attnperf.workloads.base import Workload

if TYPE_CHECKING:
    from tests.measure.conftest import EagerGpu

CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="test")
INTERPRETED = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="test", interpreted=True)
GPU = DeviceInfo(kind="cuda", arch="sm_90", product="h200")


@dataclass(frozen=True)
class Declaring(Backend):
    """A function of (x, w) that says what it runs."""

    families = ("adhoc",)
    name: str = field(default="test.declaring", init=False)
    cpu_flops_max: float = field(default=1e9, init=False)
    times_on_cpu: bool = field(default=True, kw_only=True)
    tolerance: Tolerance = field(default_factory=Tolerance, kw_only=True)
    call: Callable[..., Any]
    declares: Declares = field(default_factory=Declares)

    def prepare(self, workload: Workload, inputs: Tensors) -> Prepared:
        """The inputs as they are."""
        return Prepared(self.call, inputs, lambda new: new, lambda raw: {"out": raw}, declares=self.declares)


def product(device: str) -> AdHoc:
    """out = x @ w of (64, 64)."""
    return AdHoc("product", lambda: tuple(torch.randn(2, 64, 64).to(device)), torch.matmul)


def subject_of(backend: Declaring, device: DeviceInfo = CPU) -> TorchSubject:
    """Prepared."""
    subject = TorchSubject(backend, product(device.torch_device), device, Seeds(0, 1, 2))
    subject.prepare()
    return subject


@pytest.fixture(autouse=True)
def _unspent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profiler used by one test forbids no other to time."""
    monkeypatch.setattr(trace, "_used", [])


def test_declared_operators_are_looked_for_in_every_check() -> None:
    """The same right result under another operator than declared is a problem; under the declared one it is not."""
    honest = subject_of(Declaring(torch.matmul, Declares(operators=("aten::mm",), never=("softmax",))))
    assert honest.check().problems == ()
    liar = subject_of(Declaring(lambda x, w: torch.einsum("ij,jk->ik", x, w), Declares(operators=("aten::mm$",))))
    (problem,) = liar.check().problems
    assert problem.startswith("what ran: test.declaring declares the operator 'aten::mm$', but it did not run")
    with pytest.raises(NotProvenRightError):
        liar.measure_blocks(3, 200.0, 1e6)


def test_what_ran_on_a_cpu_is_recorded() -> None:
    """Operators are the launch identity where there are no kernels."""
    subject = subject_of(Declaring(torch.matmul))
    assert subject.check().parts["what ran"] > 0
    assert {launch.name for launch in subject.finish().launches} == {"aten::matmul", "aten::mm"}


def test_an_interpreter_is_not_looked_at() -> None:
    """Triton's interpreter runs Python and NumPy: torch's operators would be the interpreter's, not the kernel's."""
    backend = Declaring(torch.matmul, Declares(operators=("never_there",)), times_on_cpu=False)
    assert subject_of(backend, INTERPRETED).check().right


def test_a_spent_process_times_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a profiler has been used, every time of this process is refused, and `finish` says that it is spent."""
    subject = subject_of(Declaring(torch.matmul))
    assert subject.check().right
    monkeypatch.setattr(trace, "_used", [True])
    with pytest.raises(NotProvenRightError, match="a profiler has been used in this process; time"):
        subject.measure_blocks(3, 200.0, 1e6)
    assert subject.finish().spent


class Launcher:
    """A product whose launcher says which object it launches."""

    def __init__(self) -> None:
        self.data: bytes | None = b"as proven"

    def __call__(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """Launch."""
        if self.data is not None:
            ran_code.record_kernel("forward", self.data, 128, 0)
        return x @ w


@pytest.fixture
def graph(eager_gpu: EagerGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every timed graph holds one launch of the kernel, and a copy."""
    choose: Callable[..., Any] = timing.choose_timer  # type: ignore[attr-defined]
    content = GraphContent((Launch("forward", block=(128, 1, 1)), Launch("Memcpy DtoD", "copy", (64,))), False)

    def chosen(*asked: Any) -> Any:
        timer = choose(*asked)
        timer.read_graph_content = lambda: content
        return timer

    monkeypatch.setattr(timing, "choose_timer", chosen)


@pytest.mark.usefixtures("graph")
def test_the_code_of_what_is_timed_is_reported() -> None:
    """Objects that were launched while the case was prepared and checked, not those that are while it is timed."""
    launcher = Launcher()
    subject = subject_of(Declaring(launcher, Declares(matrix=True)), CPU)
    assert subject.check().right
    launcher.data = b"while timed"
    subject.measure_blocks(3, 200.0, 1e6)
    final = subject.finish()
    copy, forward = final.launches
    assert (copy.object_id, forward.name) == ("", "forward")
    assert final.code.keys() == {forward.object_id} != {""}
    assert final.matrix


@pytest.mark.usefixtures("graph")
@pytest.mark.parametrize("seen", ["prepared", "checked", "timed"])
def test_code_is_noted_before_a_case_is_timed(seen: str) -> None:
    """What is launched while the case is prepared only, or checked only, is known; what comes later is not."""
    launcher = Launcher()
    launcher.data = b"first" if seen == "prepared" else None
    subject = subject_of(Declaring(launcher))
    launcher.data = b"second" if seen == "checked" else None
    assert subject.check().right
    launcher.data = b"third" if seen == "timed" else None
    subject.measure_blocks(3, 200.0, 1e6)
    assert bool(subject.finish().code) is (seen != "timed")


@pytest.mark.usefixtures("graph")
def test_code_that_could_not_be_had_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object beyond the limit leaves the launch unknown, the reason in the configuration, and the case right."""
    monkeypatch.setattr(ran_code, "OBJECT_BYTES_MOST", 4)
    subject = subject_of(Declaring(Launcher()))
    assert subject.check().right
    subject.measure_blocks(3, 200.0, 1e6)
    final = subject.finish()
    assert final.check.right
    assert {launch.object_id for launch in final.launches} == {""}
    assert (final.code, final.matrix) == ({}, False)
    assert final.config["machine_code"].startswith("unknown: the object of forward has 9 bytes and was left out")


@pytest.mark.gpu
def test_the_timed_graph_is_looked_at() -> None:
    """Kernels are read from the graph that is timed, per call of it; the process is not spent."""
    subject = subject_of(Declaring(torch.matmul, Declares(kernels=("gemm|nvjet|Kernel2|cutlass",))), GPU)
    assert subject.check().problems == ()
    subject.measure_blocks(3, 200.0, 1e6)
    final = subject.finish()
    assert final.check.right
    assert not final.spent
    kernels = [launch for launch in final.launches if launch.kind == "kernel"]
    assert [launch.calls for launch in kernels] == [1.0]
    assert kernels[0].grid


@pytest.mark.gpu
def test_a_graph_of_other_kernels_is_not_timed() -> None:
    """A kernel that is declared and not in the graph: right, and refused before a time is taken."""
    subject = subject_of(Declaring(torch.matmul, Declares(kernels=("flash_fwd",))), GPU)
    assert subject.check().right
    with pytest.raises(OtherWorkError, match=r"what is timed: .* declares the kernel 'flash_fwd'") as caught:
        subject.measure_blocks(3, 200.0, 1e6)
    assert not caught.value.report.right
    with pytest.raises(NotProvenRightError):
        subject.measure_blocks(3, 200.0, 1e6)


@pytest.mark.gpu
def test_a_profiled_check_sees_kernels() -> None:
    """Where nothing is timed, the profiler looks for declared kernels before any graph exists."""
    subject = subject_of(Declaring(torch.matmul, Declares(kernels=("flash_fwd",))), GPU)
    (problem,) = subject.check(profiled=True).problems
    assert problem.startswith("what ran: test.declaring declares the kernel 'flash_fwd', but it did not run")
    assert subject.finish().spent
