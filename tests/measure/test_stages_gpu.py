"""Stages of real kernels: what each launches and allocates, and that their times add up to the call's."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from pytest_attnperf.backends import Backend, Outputs, Pipeline, Prepared, Stage, Tensors, Values
from pytest_attnperf.environment.device import identify_device
from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure.inspection import OtherWorkError
from pytest_attnperf.measure.proving import TimedWrongError
from pytest_attnperf.measure.seeds import Seeds, timed_seed
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import Tolerance
from pytest_attnperf.records.stages import Breakdown
from pytest_attnperf.workloads.base import Workload

pytestmark = pytest.mark.gpu

BYTES = 2


@dataclass(frozen=True)
class Rows:
    """out = softmax(x @ w) @ v in f16, x of (rows, width), w and v square."""

    rows: int = 4096
    width: int = 4096
    family: str = "gemm"
    dtype: str = "f16"
    cache_state: str = "hot"
    flops: float | None = None
    bytes_min: float | None = None
    non_finite_outputs: frozenset[str] = frozenset()
    id: str = "rows-f16"

    def definition(self) -> dict[str, Any]:
        """The sizes."""
        return {"rows": self.rows, "width": self.width}

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Products of about 1."""
        generator = torch.Generator(device).manual_seed(seed + planted)
        square = (self.width, self.width)
        x, w, v = (
            torch.randn(*shape, generator=generator, device=device)
            for shape in ((self.rows, self.width), square, square)
        )
        return x.half(), (w * self.width**-0.5).half(), v.half()

    def reference(self, inputs: Tensors) -> Outputs:
        """In fp32."""
        x, w, v = (tensor.float() for tensor in inputs)
        return {"out": torch.softmax(x @ w, -1) @ v}

    def plain(self, inputs: Tensors) -> Outputs:
        """In f16."""
        x, w, v = inputs
        return {"out": torch.softmax(x @ w, -1) @ v}


INPUTS = ("x", "w", "v")
PROJECT = Stage("project", lambda v: {"y": v["x"] @ v["w"]})
SPLIT = Stage("split", lambda v: {"scores": v["y"].view_as(v["y"])}, ("y",))
SOFTMAX = Stage("attention.softmax", lambda v: {"weights": torch.softmax(v["scores"], -1)}, ("scores",))
OUTPUT = Stage("attention.output", lambda v: {"out": v["weights"] @ v["v"]})
HONEST = Pipeline(INPUTS, (PROJECT, SPLIT, SOFTMAX, OUTPUT), ("out",))


class Posing(Pipeline):
    """Right as a whole, whatever its stages do."""

    def __call__(self, *tensors: torch.Tensor) -> Tensors:
        """As the honest one."""
        return HONEST(*tensors)


@dataclass(frozen=True)
class Piped(Backend):
    """A backend whose call is given."""

    families = ("gemm",)
    name: str = field(default="test.piped", init=False)
    cpu_flops_max: float = field(default=0.0, init=False)
    times_on_cpu: bool = field(default=True, kw_only=True)
    tolerance: Tolerance = field(default_factory=Tolerance, kw_only=True)
    call: Pipeline

    def prepare(self, workload: Workload, inputs: Tensors) -> Prepared:
        """The inputs as they are."""
        return Prepared(self.call, inputs, lambda given: given, lambda raw: {"out": raw[0]})


def timed(call: Pipeline, workload: Rows | None = None) -> TorchSubject:
    """A case whose call has been proven and timed on the GPU."""
    problem = workload or Rows()
    subject = TorchSubject(Piped(call), problem, identify_device("cuda"), Seeds(timed_seed(problem), 1, 2))
    subject.prepare()
    report = subject.check()
    assert report.right, report.problems
    subject.measure_blocks(12, block_us=600.0, budget_us=120_000.0)
    return subject


def stages_of(subject: TorchSubject) -> Breakdown:
    """The breakdown; the case must be right behind it, too."""
    found = subject.measure_stages(600.0)
    final = subject.finish()
    assert final.check.right, final.check.problems
    return found


def test_stages_add_up_to_the_call() -> None:
    """Each stage's launches and allocations are the call's, views take nothing, and times add up within 5 %."""
    found = stages_of(timed(HONEST))
    assert found.timer == "graph"
    assert found.call_us >= 40
    assert found.share == pytest.approx(1.0, abs=0.05)
    split = found.stages[1]
    assert (split.median_us, split.launches, split.allocations, split.allocated_bytes) == (0.0, (), 0, 0)
    assert all(stage.launch_count for stage in found.stages if stage is not split)
    assert found.launch_count == sum(stage.launch_count or 0 for stage in found.stages)
    size = Rows().rows * Rows().width * BYTES
    assert [found.stages[index].allocated_bytes for index in (0, 2, 3)] == [size] * 3
    assert found.allocations == sum(stage.allocations or 0 for stage in found.stages) == 3
    assert found.build_ms > 0
    assert found.first_call_ms > 0


def test_cold_stages_add_up_to_the_call() -> None:
    """Few rows against weights in no cache, as in decode: stages that read them are cold, and the others hot."""
    found = stages_of(timed(HONEST, Rows(rows=16, width=8192, cache_state="cold")))
    assert found.timer == "graph_cold"
    assert [stage.cache_state for stage in found.stages] == ["cold", "hot", "hot", "cold"]
    assert found.share == pytest.approx(1.0, abs=0.05)


def test_a_stage_in_place_is_measured() -> None:
    """A stage that writes into its own input, and gives the same when it is run again, is proven and timed."""
    relu = Stage("mask", lambda v: {"y": v["y"].clamp_(min=-100.0)})
    found = stages_of(timed(replace(HONEST, stages=(PROJECT, relu, SPLIT, SOFTMAX, OUTPUT))))
    assert found.stages[1].allocated_bytes == 0
    assert found.stages[1].median_us > 0


def test_stages_of_other_work_are_refused() -> None:
    """Stages that leave something out while the call is right fail the case."""
    lie = Stage("attention.output", lambda v: {"out": torch.zeros_like(v["weights"])})
    with pytest.raises(TimedWrongError, match="the call is right, its stages are not"):
        timed(Posing(INPUTS, (PROJECT, SPLIT, SOFTMAX, lie), ("out",))).measure_stages(600.0)


def test_a_stage_through_the_host_is_named() -> None:
    """A copy from the host's memory in one stage's graph is found there."""
    host = torch.zeros(64, dtype=torch.float16).pin_memory()
    there = torch.zeros(64, dtype=torch.float16, device="cuda")
    crossing = Stage("rope", lambda v: {"table": there.copy_(host, non_blocking=True)})
    with pytest.raises(OtherWorkError, match="stage 'rope': the call copied 128 bytes between host and device"):
        timed(Posing(INPUTS, (PROJECT, crossing, SPLIT, SOFTMAX, OUTPUT), ("out",))).measure_stages(600.0)


def test_a_stage_that_waits_for_the_gpu_is_not_timed() -> None:
    """It cannot be captured: an error of the stages that names it, behind which the case is finished."""

    def waits(values: Values) -> Values:
        assert values["x"][0, 0].item() < 1e9
        return PROJECT.run(values)

    waiting = Stage("project", waits)
    subject = timed(Posing(INPUTS, (waiting, SPLIT, SOFTMAX, OUTPUT), ("out",)))
    with pytest.raises(
        CaseFailedError, match="stage 'project': graph capture failed: the call synchronises with the host"
    ):
        subject.measure_stages(600.0)
    assert subject.finish().check.right
