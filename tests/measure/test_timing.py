"""How a proven case is timed, with timers of a CPU, with replays that need no GPU, and on a GPU where there is one."""

from __future__ import annotations

import gc
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pytest_attnperf.environment.system import ThrottleReading
from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure import placements, timing, trace
from pytest_attnperf.measure.cold_cache import ColdSize
from pytest_attnperf.measure.proving import TimedWrongError, forget_references
from pytest_attnperf.measure.seeds import Seeds, timed_seed
from pytest_attnperf.measure.stopping import MIN_BLOCKS
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.measure.timing import INSIDE
from pytest_attnperf.records import DeviceInfo, NotProvenRightError, Samples, Tolerance
from pytest_attnperf.testing.liars.liar import OneWorkload
from pytest_attnperf.workloads.prefill import Prefill
from tests.measure.products import CPU, unchecked_product

if TYPE_CHECKING:
    from tests.measure.conftest import EagerGpu

GPU = DeviceInfo(kind="cuda", arch="sm_90", product="unlisted")
SIZE = 32
INPUT_BYTES = 2 * SIZE * SIZE * 4

SMALL = Prefill(1, 16, 2, 32, causal=True)
Kernel = Callable[..., Callable[..., torch.Tensor]]


def subject_of(
    call: Callable[..., torch.Tensor] = torch.matmul,
    cache_state: str = "hot",
    device: DeviceInfo = CPU,
    size: int = SIZE,
) -> TorchSubject:
    """A product of (size, size) whose check has passed."""
    subject = unchecked_product(call, cache_state, device, size)
    assert subject.check().problems == ()
    return subject


def timed_inputs(subject: TorchSubject) -> tuple[torch.Tensor, ...]:
    """What the case must be timed on."""
    return subject._workload.make_inputs(0, "cpu", planted=False)


@pytest.fixture(autouse=True)
def _small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that three and a half of these cases outgrow; a profiler used by one test forbids no other to time."""
    monkeypatch.setattr(timing, "cold_size", lambda device: ColdSize(7 * INPUT_BYTES // 2, "a small cache"))
    monkeypatch.setattr(trace, "_used", [])


def test_a_process_knows_how_long_it_was_throttled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's counters are read right before the first block and after the last one; a CPU has none."""
    taken: list[float] = []

    def read() -> ThrottleReading:
        taken.append(time.monotonic())
        return ThrottleReading({"software power cap": 10.0 * len(taken)}, 20.0 * len(taken))

    subject = subject_of()
    assert subject.measure_blocks(7, 200.0, 1e9).throttled_s is None
    monkeypatch.setattr(timing, "_throttle_counters", lambda kind, device_id: read)
    samples = subject.measure_blocks(7, 200.0, 1e9)
    assert len(taken) == 2
    assert samples.throttled_s is not None
    assert samples.throttled_s["software power cap"] == pytest.approx((taken[1] - taken[0]) / 2, rel=0.2)


def test_blocks_use_one_timer_for_one_length_and_name() -> None:
    """Asking again goes on with the same timer; another length or another name prepares another one."""
    subject = subject_of()
    timers = []
    for block_us, asked in ((200.0, "auto"), (200.0, "auto"), (2000.0, "auto"), (2000.0, "host")):
        subject.measure_blocks(1, block_us, 1e9, asked)
        timers.append(subject._ready_timing.timer)
    assert timers[0] is timers[1]
    assert len({id(timer) for timer in timers}) == 3


def test_a_timer_that_cannot_be_used_leaves_the_case_proven() -> None:
    """The reason is told, and the rule's timer may still be used."""
    subject = subject_of()
    with pytest.raises(CaseFailedError, match="'graph' was requested on 'cpu', but it needs a GPU"):
        subject.measure_blocks(1, 200.0, 1e9, "graph")
    assert subject.measure_blocks(1, 200.0, 1e9).timer == "host"


def test_a_profiled_process_is_timed_by_the_profiler_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a profiler leaves behind slows everything alike: other timers are refused, its own goes on."""
    subject = subject_of()
    monkeypatch.setattr(trace, "_used", [True])
    with pytest.raises(NotProvenRightError, match="a profiler has been used in this process; time"):
        subject.measure_blocks(1, 200.0, 1e9, "host")
    with pytest.raises(CaseFailedError, match="'profiler' was requested on 'cpu'"):
        subject.measure_blocks(1, 200.0, 1e9, "profiler")


def test_a_cold_case_on_a_cpu_goes_round_over_copies() -> None:
    """No two calls in a row read the same inputs; the judged last call reads the case's own."""
    seen: list[int] = []

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        seen.append(x.data_ptr())
        return x @ w

    subject = subject_of(call, "cold")
    samples = subject.measure_blocks(3, 100.0, 1e9)
    assert (samples.timer, samples.cache_state, samples.note) == ("host_cold", "cold", "a small cache")
    rounds = seen[-8:]
    assert rounds[:4] == rounds[4:]
    assert len(set(rounds)) == 4
    own = subject._ready.tensors[0].data_ptr()
    assert own in rounds
    assert subject.finish().check.right
    assert seen[-1] == own


def test_a_case_too_small_for_a_cold_cache_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named with what it holds; it stays proven, and a larger one may be timed."""
    subject = subject_of(cache_state="cold")
    monkeypatch.setattr(timing, "cold_size", lambda device: ColdSize(1 << 30))
    with pytest.raises(CaseFailedError, match=r"^test\.product on adhoc-product is too small to be timed cold: "):
        subject.measure_blocks(3, 100.0, 1e9)


def test_no_memory_for_copies_is_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a call itself runs out of it: the case is freed, and the error says what it was."""
    subject = subject_of(cache_state="cold")

    def no_memory(*arguments: Any) -> None:
        raise MemoryError("cannot hold the copies")

    monkeypatch.setattr(timing, "make_copies", no_memory)
    with pytest.raises(CaseFailedError, match=r"out of memory: test\.product on adhoc-product: cannot hold") as caught:
        subject.measure_blocks(3, 100.0, 1e9)
    assert caught.value.out_of_memory
    with pytest.raises(CaseFailedError, match="is not prepared"):
        subject.finish()


def test_a_hot_case_is_measured_at_several_places(eager_gpu: EagerGpu) -> None:
    """Every place is proven on inputs of its own, timed on the workload's, and left; clocks come with the blocks."""
    subject = subject_of()
    samples = subject.measure_blocks(30, 600.0, 1e9)
    assert (samples.placements, len(samples.block_us)) == (15, 90)
    assert samples.block_us[::6] == tuple(100.0 + place for place in range(15))
    assert samples.clock_mhz == (1900.0,) * 90
    assert [timer.closed for timer in eager_gpu.timers] == [False] + [True] * 14
    assert all(map(torch.equal, subject._ready.tensors, timed_inputs(subject)))
    assert subject.finish().check.right


def test_a_wrong_replay_is_its_own_message(eager_gpu: EagerGpu) -> None:
    """Right eagerly, wrong replayed: no time is taken, the report says so, and the case is no longer proven."""
    eager_gpu.spoil = lambda place, right: torch.full_like(right, float("nan"))
    subject = subject_of()
    with pytest.raises(TimedWrongError, match=r"^eager right, replay wrong: replay: ") as caught:
        subject.measure_blocks(3, 200.0, 1e9)
    assert not caught.value.report.right
    assert [timer.closed for timer in eager_gpu.timers] == [True]
    with pytest.raises(NotProvenRightError):
        subject.measure_blocks(3, 200.0, 1e9)


def test_a_replay_that_is_wrong_at_another_place_only_is_caught(eager_gpu: EagerGpu) -> None:
    """A place whose graph computes something else does not count, and neither does the case."""
    eager_gpu.spoil = lambda place, right: right * 1.01 if place == 2 else right
    subject = subject_of()
    with pytest.raises(TimedWrongError, match=r"^eager right, replay wrong"):
        subject.measure_blocks(30, 200.0, 1e9)
    assert all(timer.closed for timer in eager_gpu.timers[1:])
    with pytest.raises(NotProvenRightError):
        subject.measure_blocks(30, 200.0, 1e9)


def test_the_last_replay_goes_through_the_timer(eager_gpu: EagerGpu) -> None:
    """What is judged at the end is the very thing that was timed, not another eager call."""
    subject = subject_of()
    subject.measure_blocks(3, 200.0, 1e9)
    assert subject._prover.cost.parts["call"] > 0
    eager_gpu.spoil = lambda place, right: right * 0.5
    final = subject.finish()
    assert {figure.check for figure in final.check.figures} == {"last replay"}
    assert not final.check.right
    assert all(timer.closed for timer in eager_gpu.timers)


def test_a_cold_case_is_replayed_in_rounds(eager_gpu: EagerGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """One graph over all copies at one place, after a rest, in few blocks; copies hold the timed inputs, then go."""
    rests: list[float] = []
    monkeypatch.setattr(placements, "REST_SECONDS", 0.1)
    monkeypatch.setattr(timing.time, "sleep", rests.append)
    subject = subject_of(cache_state="cold")
    rests.clear()  # a check rests, too
    samples = subject.measure_blocks(30, 200.0, 1e9)
    assert (samples.timer, samples.cache_state, samples.placements) == ("graph_cold", "cold", 1)
    assert (samples.calls_per_block, len(samples.block_us)) == (4, timing.COLD_BLOCKS_MOST)
    assert rests == [0.1]
    assert len(subject.measure_blocks(30, 200.0, 1.0).block_us) == MIN_BLOCKS
    inputs = [other.tensors for other in (*subject._ready_timing._copies.others, subject._ready)]
    assert all(all(map(torch.equal, held, timed_inputs(subject))) for held in inputs)
    alive = [weakref.ref(tensor) for held in inputs for tensor in held]
    del inputs
    assert subject.finish().check.right
    gc.collect()
    assert [tensor() for tensor in alive] == [None] * 8


@pytest.mark.parametrize("end", [0, 1])
def test_both_ends_of_a_round_are_judged(eager_gpu: EagerGpu, end: int) -> None:
    """A replay that is wrong on the first copy only, or on the case's own inputs only, is not timed."""
    eager_gpu.spoil = lambda place, right: right * 1.01 if place == end else right
    subject = subject_of(cache_state="cold")
    with pytest.raises(TimedWrongError, match=r"^eager right, replay wrong"):
        subject.measure_blocks(3, 200.0, 1e9)
    assert subject._ready_timing._copies.others == ()


def test_a_backend_may_write_every_result_to_one_buffer(eager_gpu: EagerGpu) -> None:
    """The last call of a round then overwrites the first one's result, which is right all the same."""
    buffer = torch.empty(SIZE, SIZE)
    subject = subject_of(lambda x, w: torch.matmul(x, w, out=buffer), "cold")
    assert subject.measure_blocks(3, 200.0, 1e9).timer == "graph_cold"
    assert subject.finish().check.right


def _gpu_blocks(cache_state: str, asked: str = "auto") -> tuple[TorchSubject, Samples]:
    subject = subject_of(cache_state=cache_state, device=GPU, size=1024)
    return subject, subject.measure_blocks(30, 600.0, 120_000.0, asked)


@pytest.mark.gpu
def test_a_cold_case_on_a_gpu_is_captured_proven_and_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds over a real cache's copies, judged at both ends and at the last replay; memory is free afterwards."""
    monkeypatch.setattr(timing, "cold_size", lambda device: ColdSize(256 << 20))
    before = torch.cuda.memory_allocated()
    subject, samples = _gpu_blocks("cold")
    assert (samples.timer, samples.cache_state, samples.placements) == ("graph_cold", "cold", 1)
    assert samples.calls_per_block % 32 == 0
    assert all(0 < us < 1000 for us in samples.block_us)
    final = subject.finish()
    assert final.check.problems == ()
    assert not final.spent
    forget_references()  # they are kept for the next case
    getattr(torch._C, "_cuda_clearCublasWorkspaces")()  # noqa: B009 - private, and 32 MiB for each stream
    assert torch.cuda.memory_allocated() - before < 64 << 20


@pytest.mark.gpu
def test_a_cold_case_that_cannot_be_captured_is_not_timed() -> None:
    """A synchronising call gets no hot time instead."""

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x.sum().item()
        return x @ w

    subject = subject_of(call, "cold", GPU, 256)
    with pytest.raises(CaseFailedError, match=r"synchronises with the host.*'graph_cold' timer only"):
        subject.measure_blocks(7, 200.0, 120_000.0)


@pytest.mark.gpu
def test_a_case_on_a_gpu_is_timed_by_the_profiler() -> None:
    """Kernel time, and the process is spent for every other timer; rotated inputs are timed all the same."""
    subject, samples = _gpu_blocks("hot", "profiler")
    assert samples.timer == "profiler"
    assert subject.measure_rotation(600.0).same_us > 0
    with pytest.raises(NotProvenRightError, match="a profiler has been used"):
        subject.measure_blocks(7, 600.0, 120_000.0)
    final = subject.finish()
    assert final.check.problems == ()
    assert final.spent


@pytest.mark.gpu
def test_blocks_on_a_gpu_carry_the_clock() -> None:
    """Where stamps can be taken, one plausible clock for every block."""
    _, samples = _gpu_blocks("hot")
    if timing.stamps_of("cuda") is not None:
        assert len(samples.clock_mhz) == len(samples.block_us)
        assert all(100 < mhz < 5000 for mhz in samples.clock_mhz)


def attention(*_: Any) -> Callable[..., torch.Tensor]:
    """torch's own."""

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        heads_first = (tensor.transpose(1, 2) for tensor in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(*heads_first, is_causal=True).transpose(1, 2)

    return call


@contextmanager
def checked(kernel: Kernel) -> Iterator[TorchSubject]:
    """A case of SMALL that has passed its check."""
    seeds = Seeds(timed_seed(SMALL), 7, 8)
    backend = OneWorkload("test.one", SMALL, kernel, tolerance=Tolerance(4.0, "the test's own"))
    subject = TorchSubject(backend, SMALL, CPU, seeds)
    subject.prepare()
    report = subject.check()
    assert report.right, report.problems
    yield subject


def timed(subject: TorchSubject, how: str) -> None:
    """Time it alone, or in turns with another."""
    if how == "blocks":
        subject.measure_blocks(7, 200.0, 1e9)
        return
    subject.prepare_turns(200.0)
    for _ in range(4):
        subject.measure_turn(0)


@pytest.mark.parametrize("how", ["blocks", "turns"])
def test_what_gives_an_old_result_in_a_block_is_incorrect(how: str) -> None:
    """A call that sees that Python's collector is paused, as it is in blocks only, is not timed."""

    def kernel(*_: Any) -> Callable[..., torch.Tensor]:
        honest, kept = attention(), list[torch.Tensor]()

        def call(*qkv: torch.Tensor) -> torch.Tensor:
            if gc.isenabled() or not kept:
                kept[:] = [honest(*qkv)]
            return kept[0].clone()

        return call

    with checked(kernel) as subject:
        with pytest.raises(TimedWrongError) as raised:
            timed(subject, how)
        assert raised.value.report.problems[0].startswith(f"{INSIDE}: 'out' is off by")
        with pytest.raises(NotProvenRightError):
            subject.measure_blocks(7, 200.0, 1e9)


@pytest.mark.parametrize("how", ["blocks", "turns"])
def test_the_judged_block_is_made_as_all_others_are(how: str) -> None:
    """Same callers at the same lines, same state of the collector; and its check is part of the report's cost."""
    seen: dict[tuple[Any, ...], int] = {}
    inputs: set[float] = set()

    def kernel(*_: Any) -> Callable[..., torch.Tensor]:
        honest = attention()

        def call(*qkv: torch.Tensor) -> torch.Tensor:
            frames, frame = [], sys._getframe()
            while frame is not None:
                frames.append((frame.f_code.co_name, frame.f_lineno))
                frame = frame.f_back  # type: ignore[assignment]
            names = [name for name, _ in frames]
            if "sample_blocks" in names:
                place = (gc.isenabled(), *frames[: names.index("sample_blocks") + 3])
                seen[place] = seen.get(place, 0) + 1
                inputs.add(float(qkv[0].float().sum()))
            return honest(*qkv)

        return call

    with checked(kernel) as subject:
        before = subject._prover.cost.seconds
        timed(subject, how)
        assert len(inputs) == 2
        assert len(seen) == 4  # blocks that are measured and not, and the last call of each
        assert subject._prover.cost.seconds > before
        assert all(map(torch.equal, subject._ready.tensors, SMALL.make_inputs(timed_seed(SMALL), "cpu", planted=False)))
        assert subject.finish().check.right
