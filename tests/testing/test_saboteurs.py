"""Each saboteur around a real kernel on the CPU: caught by the check it is made for, the honest twin by none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from kernels.native.prefill_eager import Eager
from pytest_attnperf.backends import Backend, Outputs, Prepared, Registry, Tensors
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import CheckReport, DeviceInfo, Tolerance
from pytest_attnperf.testing.saboteurs import Sabotaged, Slowed, WritesNaN, WritesNothing, WrongValue
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.prefill import Prefill

CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="test")
HONEST = Eager("native.eager", 1e9)
WORKLOADS = ("prefill-b1-s17-h2-d16-f32-causal", "prefill-b1-s33-h2-d16-f16-causal-lse")


@dataclass(frozen=True)
class Counting(Backend):
    """out = x; counts its calls, and supports nothing longer than 64."""

    name: str = "test.counting"
    families = ("prefill", "decode")
    cpu_flops_max: float = 7.0
    times_on_cpu: bool = False
    tolerance: Tolerance = field(default_factory=lambda: Tolerance(3.0, "a paper"))
    calls: list[int] = field(default_factory=list)

    def unsupported_reasons(self, workload: Workload, device: DeviceInfo) -> list[str]:
        """Names both arguments, so that a test sees them arrive."""
        return [f"{workload.id} is too long on {device.arch}"]

    def prepare(self, workload: Workload, inputs: Tensors) -> Prepared:
        """The first input as it is."""
        return Prepared(self._call, inputs, lambda given: given, _named, {"block": "16"})

    def _call(self, *tensors: Any) -> Any:
        self.calls.append(1)
        return tensors[0]


def _named(raw: Any) -> Outputs:
    return {"out": raw}


def checked(backend: Backend, workload: Prefill) -> CheckReport:
    """The report of one check."""
    subject = TorchSubject(backend, workload, CPU, Seeds(timed=1, check=2, final=3))
    subject.prepare()
    return subject.check()


@pytest.fixture(params=WORKLOADS)
def workload(request: pytest.FixtureRequest) -> Prefill:
    """A tensor as the result, and a pair of out and lse."""
    return Prefill.parse(request.param)


@pytest.mark.parametrize("backend", [HONEST, Slowed(HONEST, every=1), Slowed(HONEST, every=2)])
def test_honest_and_slowed_are_right(backend: Backend, workload: Prefill) -> None:
    """Slower is not wrong: the honest twin and the slowed one pass every check."""
    report = checked(backend, workload)
    assert report.problems == ()
    assert report.right


def test_a_wrong_value_is_rejected_where_it_is(workload: Prefill) -> None:
    """One row too large by an eighth is beyond the budget, and the worst element lies in that row."""
    report = checked(WrongValue(HONEST), workload)
    assert any("'out' is off by" in problem and "x the budget" in problem for problem in report.problems)
    worst = max((figure for figure in report.figures if figure.output == "out"), key=lambda figure: figure.max_error)
    assert worst.worst_index[:2] == (0, 0)
    assert worst.worst_got == pytest.approx(1.125 * worst.worst_expected, rel=0.01)
    assert not any("NaN" in problem for problem in report.problems)


def test_a_row_of_nan_is_rejected(workload: Prefill) -> None:
    """Exactly the row's elements are counted as NaN, from its first one on."""
    report = checked(WritesNaN(HONEST), workload)
    assert any("'out' holds 16 NaN among" in problem for problem in report.problems)
    assert any("first at (0, 0, 0, 0)" in problem for problem in report.problems)


def test_an_output_never_written_is_rejected(workload: Prefill) -> None:
    """Memory the kernel did not write is not taken for its result, and nothing is wrong but its values."""
    report = checked(WritesNothing(HONEST), workload)
    assert {figure.output for figure in report.figures} == ({"out", "lse"} if workload.lse else {"out"})
    # What malloc gives is the judge's NaN or other garbage; either is said.
    assert any("'out' holds" in problem or "'out' is off by" in problem for problem in report.problems)
    assert not any("missing" in problem for problem in report.problems)


@pytest.mark.parametrize(("every", "calls"), [(1, 200), (10, 110), (100, 101), (101, 100)])
def test_slowed_adds_a_known_number_of_calls(every: int, calls: int) -> None:
    """Of 100 calls every n-th runs twice, and each returns what the honest one returns."""
    honest = Counting()
    prepared = Slowed(honest, every=every).prepare(Prefill.parse(WORKLOADS[0]), ())
    marker = object()
    assert all(prepared.call(marker) is marker for _ in range(100))
    assert len(honest.calls) == calls


@pytest.mark.parametrize("kind", [Slowed, WrongValue, WritesNaN, WritesNothing])
def test_a_saboteur_stands_in_for_the_honest_backend(kind: Callable[[Backend], Sabotaged]) -> None:
    """Name, families, limits, tolerance and reasons are the honest backend's; the configuration says what it is."""
    honest = Counting()
    saboteur, problem = kind(honest), Prefill.parse(WORKLOADS[0])
    for name in ("name", "families", "cpu_flops_max", "times_on_cpu", "tolerance"):
        assert getattr(saboteur, name) == getattr(honest, name)
    assert saboteur.unsupported_reasons(problem, CPU) == [f"{WORKLOADS[0]} is too long on cpu-x86_64"]
    assert saboteur.prepare(problem, ()).config == {"block": "16", "sabotage": type(saboteur).__name__}
    registry = Registry()
    registry.add(honest)
    registry.replace(saboteur)
    assert registry.get("test.counting") is saboteur


def test_a_saboteur_must_say_what_it_does() -> None:
    """`Sabotaged` alone would be an honest backend under a false flag."""
    with pytest.raises(AssertionError, match="Sabotaged does not say what it sabotages"):
        Sabotaged(Counting()).prepare(Prefill.parse(WORKLOADS[0]), ())
