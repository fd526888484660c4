from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_attnperf.backends import Backend, Outputs, Pipeline, Prepared, Stage, Tensors, Values
from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure import stage_timing, trace
from pytest_attnperf.measure.cold_cache import ColdSize
from pytest_attnperf.measure.graph_nodes import GraphContent
from pytest_attnperf.measure.inspection import OtherWorkError
from pytest_attnperf.measure.proving import TimedWrongError
from pytest_attnperf.measure.seeds import Seeds, timed_seed
from pytest_attnperf.measure.stage_timing import Stages
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import CheckReport, DeviceInfo, ErrorFigures, Launch, NotProvenRightError, Tolerance
from pytest_attnperf.records.stages import Breakdown
from pytest_attnperf.workloads.base import Workload

CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="test")
SIZE = 32


@dataclass(frozen=True)
class Product:
    """out = relu(x @ w)."""

    family: str = "gemm"
    dtype: str = "f32"
    cache_state: str = "hot"
    flops: float | None = None
    bytes_min: float | None = None
    non_finite_outputs: frozenset[str] = frozenset()
    id: str = "product-f32"

    def definition(self) -> dict[str, Any]:
        """The size."""
        return {"size": SIZE}

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Normal values."""
        generator = torch.Generator(device).manual_seed(seed + planted)
        x, w = (torch.randn(SIZE, SIZE, generator=generator, device=device) for _ in range(2))
        return x, w

    def reference(self, inputs: Tensors) -> Outputs:
        """In fp64."""
        x, w = inputs
        return {"out": (x.double() @ w.double()).relu()}

    def plain(self, inputs: Tensors) -> Outputs:
        """In fp32."""
        x, w = inputs
        return {"out": (x @ w).relu()}


PROJECT = Stage("project", lambda v: {"y": v["x"] @ v["w"]})
SPLIT = Stage("split", lambda v: {"left": v["y"][:, :16], "right": v["y"][:, 16:]}, ("y",))
JOIN = Stage("attention.join", lambda v: {"out": torch.cat([v["left"], v["right"]], 1).relu()}, ("left", "right"))
HONEST = Pipeline(("x", "w"), (PROJECT, SPLIT, JOIN), ("out",))


@dataclass(frozen=True)
class Piped(Backend):
    """A backend whose call is given."""

    families = ("gemm",)
    name: str = field(default="test.piped", init=False)
    cpu_flops_max: float = field(default=1e9, init=False)
    times_on_cpu: bool = field(default=True, kw_only=True)
    tolerance: Tolerance = field(default_factory=Tolerance, kw_only=True)
    call: Callable[..., Any]

    def prepare(self, workload: Workload, inputs: Tensors) -> Prepared:
        """The inputs as they are."""
        return Prepared(self.call, inputs, lambda given: given, lambda raw: {"out": raw[0]})


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """One block of everything; a profiler used by one test forbids no other to time."""
    monkeypatch.setattr(trace, "_used", [])
    for name, value in {"ROUNDS": 2, "ROUNDS_LEAST": 1, "PAIRS": 1, "BLOCK_US_MOST": 30.0}.items():
        monkeypatch.setattr(stage_timing, name, value)


def timed(call: Callable[..., Any]) -> TorchSubject:
    """A case whose call has been proven and timed."""
    subject = TorchSubject(Piped(call), Product(), CPU, Seeds(timed_seed(Product()), check=1, final=2))
    subject.prepare()
    assert subject.check().right
    subject.measure_blocks(3, block_us=30.0, budget_us=1e9)
    return subject


def switched(stage: Stage, other: Callable[[Values], Values]) -> tuple[Stage, list[bool]]:
    """The stage, which does something else as long as the list is not empty."""
    on: list[bool] = []
    return replace(stage, run=lambda values: other(values) if on else stage.run(values)), on


def test_stages_and_the_call_are_told() -> None:
    """Every stage has its time, what it ran and what it allocated; so has the call, and what came before it."""
    subject = timed(HONEST)
    found = subject.measure_stages(600.0)
    assert [stage.name for stage in found.stages] == ["project", "split", "attention.join"]
    assert all(stage.median_us > 0 for stage in found.stages)
    assert [stage.allocations for stage in found.stages] == [1, 0, 2]
    assert [stage.allocated_bytes for stage in found.stages] == [4096, 0, 8192]
    names = [[launch.name for launch in stage.launches or ()] for stage in found.stages]
    assert names == [["aten::matmul", "aten::mm"], [], ["aten::cat", "aten::clamp_min", "aten::relu"]]
    assert (found.allocations, found.allocated_bytes, found.launch_count) == (3, 12288, 5)
    assert found.timer == "host"
    assert min(found.call_us, found.build_ms, found.first_call_ms) > 0
    assert subject.finish().check.right


def test_a_call_without_stages_is_told_as_a_whole() -> None:
    """A fused backend has its time, build, first call and allocations, and no stages."""
    found = timed(lambda x, w: ((x @ w).relu(),)).measure_stages(600.0)
    assert (found.stages, found.sum_us, found.share) == ((), None, None)
    assert found.call_us > 0
    assert found.allocations == 2


def test_timed_inputs_are_in_place_again() -> None:
    """What proofs have loaded meanwhile is gone afterwards."""
    seen: list[torch.Tensor] = []
    noting, on = switched(PROJECT, lambda v: (seen.append(v["x"].clone()), PROJECT.run(v))[1])
    subject = timed(replace(HONEST, stages=(noting, SPLIT, JOIN)))
    subject.measure_stages(600.0)
    assert torch.equal(subject._ready.tensors[0], Product().make_inputs(timed_seed(Product()), "cpu", planted=False)[0])
    on.append(True)
    subject.measure_blocks(3, block_us=30.0, budget_us=1e9)
    # One of the first blocks is a judged one, on other inputs.
    assert torch.equal(seen[-1], Product().make_inputs(timed_seed(Product()), "cpu", planted=False)[0])


class Posing(Pipeline):
    """Right as a whole, by a computation that its stages do not show."""

    def __call__(self, *tensors: torch.Tensor) -> Tensors:
        """In one go."""
        x, w = tensors
        return ((x @ w).relu(),)


def test_stages_that_give_something_else_are_refused() -> None:
    """A pipeline whose call is right and whose stages leave something out is wrong, and timed no more."""
    lie = Stage("attention.join", lambda v: {"out": torch.zeros(SIZE, SIZE)})
    subject = timed(Posing(("x", "w"), (PROJECT, SPLIT, lie), ("out",)))
    with pytest.raises(TimedWrongError, match="the call is right, its stages are not: stages one by one: 'out'"):
        subject.measure_stages(600.0)
    with pytest.raises(NotProvenRightError):
        subject.measure_stages(600.0)


def test_an_honest_pose_passes() -> None:
    """The same pipeline with stages that give the call's result is measured."""
    assert len(timed(Posing(("x", "w"), (PROJECT, SPLIT, JOIN), ("out",))).measure_stages(600.0).stages) == 3


def test_replays_that_are_wrong_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the stages are right and their replays are not, nothing is said against the case, which is finished."""
    subject = timed(HONEST)

    def spoilt(device: str, call: Callable[[], Values], *arguments: Any) -> Ticking:
        return Ticking(lambda: {name: value * 0 for name, value in call().items()}, "", 1.0, [])

    with monkeypatch.context() as patch:
        patch.setattr(stage_timing, "choose_timer", spoilt)
        with pytest.raises(CaseFailedError, match="right when each stage runs once, but wrong when each runs again"):
            subject.measure_stages(600.0)
    assert subject.measure_stages(600.0).stages
    assert subject.finish().check.right


def test_a_stage_that_raises_leaves_the_case_as_it_was() -> None:
    """Running out of memory among all kept values is an error of the stages, behind which the case is finished."""

    def exhausted(values: Values) -> Values:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 GiB")

    join, on = switched(JOIN, exhausted)
    subject = timed(replace(HONEST, stages=(PROJECT, SPLIT, join)))
    on.append(True)
    with pytest.raises(CaseFailedError, match=r"out of memory: the stages of test\.piped on product-f32"):
        subject.measure_stages(600.0)
    on.clear()
    assert subject.measure_stages(600.0).stages
    assert subject.finish().check.right


def test_a_time_comes_first() -> None:
    """Stages are refused before a passing check, and before the call itself was timed."""
    subject = TorchSubject(Piped(HONEST), Product(), CPU, Seeds(0, 1, 2))
    subject.prepare()
    with pytest.raises(NotProvenRightError):
        subject.measure_stages(600.0)
    subject.check()
    with pytest.raises(
        CaseFailedError,
        match=r"test\.piped on product-f32 is not ready for measure_stages\(\): call measure_blocks\(\)",
    ):
        subject.measure_stages(600.0)


class Ticking:
    """A timer whose blocks take `us`; every measured one is written into `order`."""

    name, note, cache_state, max_pairs, calls_per_block, clock_mhz, replays = "graph", "", "hot", 64, 1, (), True

    def __init__(self, call: Callable[[], Any], label: str, us: float, order: list[str]) -> None:
        self.call, self.label, self.us, self.order = call, label, us, order
        self.poisoned: list[bool] = []

    def measure(self, pairs: int) -> list[float]:
        """As scripted."""
        self.order.append(self.label)
        return [self.us] * pairs

    def run_once(self, *, poisoned: bool = True) -> Any:
        """The call."""
        self.poisoned.append(poisoned)
        return self.call()

    def close(self) -> None:
        """Written down, too."""
        self.order.append(f"close {self.label}")


class Gpu:
    """A GPU as far as `stages` asks: what a captured call launches is scripted by the names of what it gives."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.launches: dict[str, tuple[Launch, ...]] = {}
        self.order: list[str] = []
        self.timers: list[Ticking] = []
        self.asked: list[tuple[str, str]] = []
        monkeypatch.setattr(stage_timing, "side_stream", lambda: None)
        monkeypatch.setattr(stage_timing, "warm_up_for_capture", lambda call, stream: None)
        monkeypatch.setattr(stage_timing, "capture_graph", lambda call, calls, stream: (call(), None))
        monkeypatch.setattr(stage_timing.graph_nodes, "read_graph_content", self._content)
        monkeypatch.setattr(stage_timing, "choose_timer", self._choose)
        monkeypatch.setattr(stage_timing, "count_allocations", lambda call, device: None)

    def _content(self, gave: Any) -> GraphContent:
        names = gave if isinstance(gave, dict) else ()
        return GraphContent(tuple(one for name in names for one in self.launches.get(name, ())), branches=False)

    def _choose(self, device: str, call: Any, block_us: float, state: str, asked: str, copies: Any) -> Ticking:
        self.asked.append((state, asked))
        self.timers.append(Ticking(call, str(len(self.timers)), 10.0, self.order))
        return self.timers[-1]

    def time(self, pipeline: Pipeline, tensors: Tensors) -> Breakdown:
        """The breakdown of a call of 25 us."""
        prover: Any = SimpleNamespace(
            device=DeviceInfo("cuda", "sm_90", "h200"),
            backend=SimpleNamespace(name="test.piped"),
            seeds=Seeds(0, 1, 2),
            make_judge=lambda prepared: SimpleNamespace(check_call=self._check),
            note_cost=lambda report: None,
            load_timed_inputs=lambda prepared: None,
        )
        prepared = Prepared(pipeline, tensors, lambda given: given, lambda raw: {"out": raw[0]})
        whole: Any = Ticking(prepared.run, "whole", 25.0, self.order)
        made = Stages(prover, prepared, whole)
        try:
            return made.time_stages(600.0)
        finally:
            made.close()

    def _check(self, check: str, run: Callable[[], Any], *, seed: int, planted: bool) -> CheckReport:
        run()
        return CheckReport((ErrorFigures(check, "out", 0.0, 1.0, 0.0, 1.0),))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """Every stage but the split launches a kernel."""
    made = Gpu(monkeypatch)
    made.launches = {"y": (Launch("gemm"),), "out": (Launch("cat"), Launch("relu"))}
    return made


def inputs() -> Tensors:
    """Timed ones."""
    return Product().make_inputs(0, "cpu", planted=False)


def test_a_stage_that_launches_nothing_takes_no_time(gpu: Gpu) -> None:
    """On a GPU views are not timed: 0 us, 0 launches; the others add up, and the call begins and ends every round."""
    found = gpu.time(HONEST, inputs())
    assert [(stage.median_us, stage.launch_count) for stage in found.stages] == [(10.0, 1), (0.0, 0), (10.0, 2)]
    assert (found.sum_us, found.call_us, found.share) == (20.0, 25.0, 0.8)
    rounds = ["whole", *["0", "1", "whole"] * 2]
    assert gpu.order == [*rounds, "close 0", "close 1"]
    assert gpu.asked == [("hot", "graph")] * 2


def test_what_lies_in_its_own_inputs_is_not_destroyed(gpu: Gpu) -> None:
    """A stage that writes in place is replayed without NaN in its result; others with."""
    gpu.launches["y"] = (Launch("mask"),)
    mask = Stage("mask", lambda v: {"y": v["y"].clamp_(min=0)})
    gpu.time(replace(HONEST, stages=(PROJECT, mask, SPLIT, JOIN)), inputs())
    assert [set(timer.poisoned) for timer in gpu.timers] == [{True}, {False}, {True}]


def test_a_stage_that_goes_through_the_host_is_named(gpu: Gpu) -> None:
    """A copy between host and device in a stage's graph is other work than the backend's."""
    gpu.launches["out"] = (Launch("Memcpy DtoH", "copy", grid=(64,)),)
    with pytest.raises(OtherWorkError, match=r"stage 'attention\.join': the call copied 64 bytes between host and"):
        gpu.time(HONEST, inputs())


def test_a_stage_without_a_timer_is_named(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no timer can measure is an error of that stage."""

    def refused(*arguments: Any) -> None:
        raise CaseFailedError("graph capture failed: it synchronises")

    monkeypatch.setattr(stage_timing, "choose_timer", refused)
    with pytest.raises(CaseFailedError, match=r"^stage 'project': graph capture failed: it synchronises"):
        gpu.time(HONEST, inputs())


def test_only_what_reads_inputs_is_timed_cold(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a cold call a stage that reads its inputs is timed cold, and one that reads what was just written hot."""
    monkeypatch.setattr(Ticking, "name", "graph_cold")
    monkeypatch.setattr(Ticking, "cache_state", "cold")
    monkeypatch.setattr(stage_timing, "cold_size", lambda device: ColdSize(4 * SIZE * SIZE * 4))
    gpu.time(HONEST, inputs())
    assert gpu.asked == [("cold", "graph_cold"), ("hot", "graph")]
