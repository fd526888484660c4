"""Shows where the time of a proven call goes: times each stage alone on values kept from one call.

A stage is timed by the same kind of timer as the call, including its allocations. The whole call takes turns with its
stages, because on a GPU that throttles, times taken one after the other would have different clocks and would not add
up. The stages are proven first: their own replays, run one after the other on fresh inputs, must give the call's
result. Each stage keeps the values that one call left before and after it, and for cold calls copies of these.
"""

from __future__ import annotations

import functools
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pytest_attnperf.backends import Declares, Pipeline, Prepared, Stage, Tensors, Values
from pytest_attnperf.correctness import poison, what_ran
from pytest_attnperf.correctness.what_ran import Trace, per_call
from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure import graph_nodes, trace
from pytest_attnperf.measure.call_costs import count_allocations
from pytest_attnperf.measure.cold_cache import cold_size
from pytest_attnperf.measure.copies import Copies, count_copies
from pytest_attnperf.measure.graph_nodes import UnreadableGraphError
from pytest_attnperf.measure.inspection import OtherWorkError
from pytest_attnperf.measure.proving import TimedWrongError
from pytest_attnperf.measure.rejection import CompileWatch
from pytest_attnperf.measure.sampling import sample_blocks
from pytest_attnperf.measure.stopping import StoppingRule
from pytest_attnperf.measure.timers import choose_timer
from pytest_attnperf.measure.timers.capture import CaptureFailedError, capture_graph, warm_up_for_capture
from pytest_attnperf.measure.timers.stream import side_stream
from pytest_attnperf.measure.timers.timer import MAX_CALLS_PER_BLOCK
from pytest_attnperf.records import CheckReport
from pytest_attnperf.records.stages import Breakdown, StageTime

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Prepared
    from pytest_attnperf.measure.cold_cache import ColdSize
    from pytest_attnperf.measure.proving import Prover
    from pytest_attnperf.measure.timers.timer import Call, Timer
    from pytest_attnperf.records import Launch

ROUNDS = 4
ROUNDS_LEAST = 2
PAIRS = 2
"""Blocks of the call and of each stage in a round."""

BUDGET_SECONDS = 0.2
"""No further round starts after this time once ROUNDS_LEAST are done: calls of milliseconds need no more."""

BLOCK_US_MOST = 300.0

CHECK = "stages one by one"

HOT = {"graph_cold": "graph", "host_cold": "host"}
"""A cold timer's name -> the timer for a stage that reads none of the inputs that are made cold."""


@dataclass
class TimedStage:
    """One stage ready for timing; without a timer if it launches nothing. `blocks_us` collects its blocks."""

    kept: KeptStage
    launches: tuple[Launch, ...] | None
    timer: Timer | None
    blocks_us: list[float] = field(default_factory=list)

    def replay(self) -> None:
        """Runs the stage once as timed, stores its results where later stages read; does nothing without a timer."""
        if self.timer is not None:
            # If results share memory with its inputs, filling them with NaN would destroy the inputs.
            self.kept.store_values(self.timer.run_once(poisoned=not self.kept.in_place))


class Stages:
    """Breaks down one proven case. Until `close` it holds every value of a call, and a graph for each stage.

    prepared   holds the timed inputs, before and after `time_stages`
    timer      the timer of the whole call
    """

    def __init__(self, prover: Prover, prepared: Prepared, timer: Timer) -> None:
        self._prover = prover
        self._prepared = prepared
        self._timer = timer
        self._torch_device = prover.device.torch_device
        self._parts: list[TimedStage] = []
        self._results: Tensors = ()

    def time_stages(self, block_us: float) -> Breakdown:
        """Times every stage and the whole call; `build_ms` and `first_call_ms` are left to the caller.

        Raises OtherWorkError if a stage copies between host and device or uses other streams, TimedWrongError if the
        stages give another result than the call, and CaseFailedError if a stage cannot be timed.
        """
        call, found = self._prepared.run, self._prepared.call
        if isinstance(found, Pipeline):
            self._make_parts(found, min(block_us, BLOCK_US_MOST))
            self._prove_stages(found)
        whole_us = self._time_rounds()
        taken = count_allocations(call, self._torch_device)
        return Breakdown(
            stages=tuple(self._stage_time(part) for part in self._parts),
            call_us=statistics.median(whole_us),
            timer=self._timer.name,
            build_ms=0.0,
            first_call_ms=0.0,
            launches=self._read_launches(call, "the call"),
            allocations=None if taken is None else taken.count,
            allocated_bytes=None if taken is None else taken.allocated_bytes,
        )

    def close(self) -> None:
        """Frees the graph of every stage and all values that were kept from the call."""
        for part in self._parts:
            if part.timer is not None:
                part.timer.close()
        self._parts, self._results = [], ()

    def _make_parts(self, pipeline: Pipeline, block_us: float) -> None:
        kept, self._results = run_stages(pipeline, self._prepared.tensors)
        for one in kept:
            name = f"stage {one.stage.name!r}"
            launches = self._read_launches(one.run, name)
            # On a CPU the host makes the views, and its time is part of the call.
            idle = launches == () and self._torch_device != "cpu"
            self._parts.append(TimedStage(one, launches, None if idle else self._make_timer(one, block_us)))

    def _make_timer(self, kept: KeptStage, block_us: float) -> Timer:
        """Makes a timer of the same kind as the whole call's, for one stage.
        For a stage that reads none of the inputs of a cold call it is the hot timer instead."""
        asked, copies = self._timer.name, Copies(())
        if self._timer.cache_state == "cold":
            copies = cold_copies(kept, self._prepared.tensors, cold_size(self._prover.device)) or copies
        state = "cold" if copies.others else "hot"
        asked = HOT.get(asked, asked) if state == "hot" else asked
        try:
            return choose_timer(self._torch_device, kept.run, block_us, state, asked, lambda: copies)
        except CaseFailedError as error:
            raise CaseFailedError(f"stage {kept.stage.name!r}: {error.summary}") from error

    def _read_launches(self, call: Call, what: str) -> tuple[Launch, ...] | None:
        """Reads the launches of one call from a graph, or its operators on a CPU; None if no graph can be made or read.

        Raises OtherWorkError that names `what` if it copies between host and device or uses other streams.
        """
        if self._torch_device == "cpu":
            return trace.record_operators(call).launches
        try:
            stream = side_stream()
            warm_up_for_capture(call, stream)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns about an empty graph
                graph, _ = capture_graph(call, 1, stream)
            content = graph_nodes.read_graph_content(graph)
        except (CaptureFailedError, UnreadableGraphError):
            return None
        launches = per_call(content.launches)
        seen = Trace(launches, branches=content.branches, on_gpu=True)
        if problems := what_ran.list_problems(seen, Declares(), self._prover.backend.name):
            raise OtherWorkError(CheckReport(problems=tuple(f"{what}: {text}" for text in problems)))
        return launches

    def _prove_stages(self, pipeline: Pipeline) -> None:
        """Runs the stages one by one on fresh inputs and compares the last result with the reference.
        Raises TimedWrongError if the stages are wrong, and CaseFailedError if only their replays are."""
        prover, seed = self._prover, self._prover.seeds.check
        report = prover.make_judge(self._prepared).check_call(CHECK, self._replay_stages, seed=seed, planted=True)
        if not report.right:
            again = prover.make_judge(self._prepared).check_call(
                CHECK, lambda: run_stages(pipeline, self._prepared.tensors)[1], seed=seed, planted=True
            )
            if not again.right:
                problems = tuple(f"the call is right, its stages are not: {text}" for text in again.problems)
                raise TimedWrongError(replace(again, problems=problems))
            raise CaseFailedError(
                f"right when each stage runs once, but wrong when each runs again ({report.problems[0]}); a stage "
                "must give the same result when it runs again on the values that it left"
            )
        prover.note_cost(report)
        prover.load_timed_inputs(self._prepared)
        self._replay_stages()

    def _replay_stages(self) -> Tensors:
        """Replays all stages one after the other on the inputs in memory, and returns the whole call's result."""
        for part in self._parts:
            part.replay()
        return self._results

    def _time_rounds(self) -> list[float]:
        """Times the whole call and its stages in turns, the whole first and last; returns the whole's us per call."""
        deadline = time.monotonic() + BUDGET_SECONDS
        with CompileWatch() as watch:
            whole_us = [*_measure_blocks(self._timer, watch)]
            for done in range(ROUNDS):
                if done >= ROUNDS_LEAST and time.monotonic() > deadline:
                    break
                for part in self._parts:
                    if part.timer is not None:
                        part.blocks_us += _measure_blocks(part.timer, watch)
                whole_us += _measure_blocks(self._timer, watch)
        return whole_us

    def _stage_time(self, part: TimedStage) -> StageTime:
        taken = count_allocations(part.kept.run, self._torch_device)
        return StageTime(
            name=part.kept.stage.name,
            median_us=statistics.median(part.blocks_us) if part.blocks_us else 0.0,
            launches=part.launches,
            allocations=None if taken is None else taken.count,
            allocated_bytes=None if taken is None else taken.allocated_bytes,
            cache_state="hot" if part.timer is None else part.timer.cache_state,
        )


def _measure_blocks(timer: Timer, watch: CompileWatch) -> Sequence[float]:
    return sample_blocks(timer, StoppingRule(PAIRS, PAIRS), watch).block_us


COLD_COPIES_MOST = MAX_CALLS_PER_BLOCK
"""A stage with inputs so small that it would need more copies is timed hot: 64 KiB of 128 MiB, e.g. rows of a table or
of a short cache. Weights of 96 KiB are cold: on an H200 a cold decode step of 12 us took 14 % longer than its hot
stages.
"""


@dataclass(frozen=True)
class KeptStage:
    """One stage with its inputs and its results, from when the stages ran once."""

    stage: Stage
    before: Values
    gave: Values

    def run(self) -> Values:
        """Runs the stage again on a copy of its mapping of inputs, because the stage may change the mapping."""
        return self.stage.run(dict(self.before))

    @property
    def in_place(self) -> bool:
        """Whether one of the stage's results shares memory with one of its inputs."""
        return any(poison.has_overlap(new, old) for new in self.gave.values() for old in self.before.values())

    def store_values(self, gave: Values) -> None:
        """Copies the stage's new results into the memory that later stages read."""
        import torch

        with torch.no_grad():
            for name, tensor in gave.items():
                target = self.gave[name]
                if not _is_same_memory(tensor, target):
                    target.copy_(tensor)


def run_stages(pipeline: Pipeline, tensors: Tensors) -> tuple[list[KeptStage], Tensors]:
    """Runs every stage once and keeps all values; returns (the stages, what the call returns)."""
    values = pipeline.name_arguments(tensors)
    kept = []
    for stage in pipeline.stages:
        before = dict(values)
        gave = stage.run(dict(before))
        kept.append(KeptStage(stage, before, dict(gave)))
        values.update(gave)
        for name in stage.frees:
            del values[name]
    return kept, tuple(values[name] for name in pipeline.outputs)


def cold_copies(kept: KeptStage, own: Tensors, size: ColdSize) -> Copies | None:
    """Copies the call's inputs that a stage reads until they exceed the cache; None if it reads none or too few bytes.

    Views of inputs, e.g. of a cache's rows, have the same layout in the copies. Results of earlier stages are not
    copied: in the call they were written just before, too.
    """
    mine = {tensor.untyped_storage().data_ptr() for tensor in own if tensor.numel()}
    read = {name: value for name in _list_names_read(kept) if _storage_address(value := kept.before[name]) in mine}
    memory = {_storage_address(value): _bytes_of(value) for value in read.values()}
    wanted = count_copies(sum(flat.numel() for flat in memory.values()), size.round_bytes)
    if wanted is None or wanted > COLD_COPIES_MOST:
        return None
    return Copies(tuple(_on_a_copy(kept, read, memory) for _ in range(wanted - 1)), size.note)


def _on_a_copy(kept: KeptStage, read: Values, memory: dict[int, torch.Tensor]) -> Prepared:
    copied = {storage: flat.clone() for storage, flat in memory.items()}
    moved = {name: _view_like(value, copied[_storage_address(value)]) for name, value in read.items()}
    values = {**kept.before, **moved}
    return Prepared(
        functools.partial(_run_on_copy, kept.stage.run, values), (), lambda inputs: inputs, lambda raw: dict(raw)
    )


def _run_on_copy(run: Callable[[Values], Values], values: Values) -> Values:
    return run(dict(values))


class _Noticing(dict[str, Any]):
    """A mapping that remembers which values were read: all of them, once something iterates over it."""

    def __init__(self, values: Values) -> None:
        super().__init__(values)
        self.read: dict[str, None] = {}

    def __getitem__(self, name: str) -> Any:
        self.read[name] = None
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Returns the value and notes that it was read."""
        self.read[name] = None
        return super().get(name, default)

    def __iter__(self) -> Iterator[str]:
        self.read.update(dict.fromkeys(super().keys()))
        return super().__iter__()

    def items(self) -> Any:
        """Returns all items and notes that all were read."""
        return [(name, self[name]) for name in self]

    def values(self) -> Any:
        """Returns all values and notes that all were read."""
        return [self[name] for name in self]


def _list_names_read(kept: KeptStage) -> Iterable[str]:
    values = _Noticing(kept.before)
    kept.stage.run(values)
    return [name for name in values.read if name in kept.before]


def _storage_address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a view of the whole memory (torch's storage) behind a tensor, as uint8 elements."""
    import torch

    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def _view_like(tensor: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
    """Returns a view of the bytes `flat` with the dtype, shape and strides of `tensor`."""
    width = tensor.element_size()
    elements = flat[: flat.numel() // width * width].view(tensor.dtype)
    return elements.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def _is_same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride()
