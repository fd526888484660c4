from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from pytest_attnperf.backends import Backend, Outputs, Prepared, Tensors
from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure import live_profile, trace
from pytest_attnperf.measure.cold_cache import ColdSize
from pytest_attnperf.measure.proving import TimedWrongError
from pytest_attnperf.measure.seeds import Seeds, timed_seed
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.measure.subject_protocol import Subject
from pytest_attnperf.records import DeviceInfo, NotProvenRightError, Samples, Tolerance
from pytest_attnperf.workloads.base import Workload

CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="test")
GPU = DeviceInfo(kind="cuda", arch="sm_90", product="h200")


@dataclass(frozen=True)
class Product:
    """out = x @ w with x and w of (size, size); planted inputs differ from timed ones in size of values only."""

    size: int = 16
    cache_state: str = "hot"
    family: str = "gemm"
    dtype: str = "f32"
    flops: float | None = None
    bytes_min: float | None = None
    non_finite_outputs: frozenset[str] = frozenset()

    @property
    def id(self) -> str:
        """The size says it all."""
        return f"product-s{self.size}-f32"

    def definition(self) -> dict[str, Any]:
        """The size."""
        return {"size": self.size}

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Normal values; eight times as large when planted."""
        generator = torch.Generator(device).manual_seed(seed)
        x, w = (torch.randn(self.size, self.size, generator=generator, device=device) for _ in range(2))
        return (x * 8, w) if planted else (x, w)

    def reference(self, inputs: Tensors) -> Outputs:
        """In fp64."""
        x, w = inputs
        return {"out": x.double() @ w.double()}

    def plain(self, inputs: Tensors) -> Outputs:
        """In fp32."""
        x, w = inputs
        return {"out": x @ w}


@dataclass(frozen=True)
class Inline(Backend):
    """A backend made of one function of (x, w)."""

    families = ("gemm",)
    name: str = field(default="test.inline", init=False)
    cpu_flops_max: float = field(default=1e9, init=False)
    times_on_cpu: bool = field(default=True, kw_only=True)
    tolerance: Tolerance = field(default_factory=Tolerance, kw_only=True)
    call: Callable[..., torch.Tensor]

    def unsupported_reasons(self, workload: Workload, device: DeviceInfo) -> list[str]:
        """Odd sizes."""
        return ["odd sizes are not supported"] if workload.definition()["size"] % 2 else []

    def prepare(self, workload: Workload, inputs: Tensors) -> Prepared:
        """The inputs as they are."""
        return Prepared(self.call, inputs, lambda given: given, lambda raw: {"out": raw}, {"block": "16"})


@pytest.fixture(autouse=True)
def _unspent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profiler used by one test forbids no other to time."""
    monkeypatch.setattr(trace, "_used", [])


def _honest(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ w


def _subject(backend: Backend, device: DeviceInfo = CPU, workload: Workload | None = None) -> TorchSubject:
    workload = workload if workload is not None else Product()
    subject = TorchSubject(backend, workload, device, Seeds(timed_seed(workload), check=1, final=2))
    subject.prepare()
    return subject


def _blocks(subject: TorchSubject, max_blocks: int = 3) -> Samples:
    return subject.measure_blocks(max_blocks, block_us=200.0, budget_us=1e9)


def test_a_proven_call_is_profiled_and_nothing_is_timed_after_it() -> None:
    """Only behind a passing check; operators by self time, which the profiler's own total confirms."""
    subject = _subject(Inline(_honest))
    with pytest.raises(NotProvenRightError, match="no check of it has passed"):
        subject.profile()
    assert subject.check().right
    found = subject.profile()
    products = next(kernel for kernel in found.kernels if kernel.shape.name == "aten::mm")
    assert (products.shape.kind, len(products.durations_ns)) == ("operator", found.calls)
    assert found.total_ns == pytest.approx(found.profiler_ns, abs=100)
    assert (found.host_ns, found.cache_state, found.notes) == ({}, "hot", ())
    assert found.build_ms > 0
    assert found.first_call_ms > 0
    assert (found.allocations, found.allocated_bytes) == (1, 1024)
    with pytest.raises(NotProvenRightError, match="a profiler has been used"):
        _blocks(subject)


def test_a_profiled_case_holds_nothing_any_more() -> None:
    """Its process waits for the next case while others are timed; that one is profiled behind the first."""
    for _ in range(2):
        subject = _subject(Inline(_honest))
        held = weakref.ref(subject._ready)
        assert subject.check().right
        assert subject.profile().calls
        gc.collect()
        assert held() is None


def test_a_cold_case_is_profiled_on_other_inputs_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls go round over the copies that its timer would use."""
    monkeypatch.setattr(live_profile, "cold_size", lambda device: ColdSize(6 * 2048, "sizes are scripted"))
    seen: list[int] = []

    def noting(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        seen.append(x.data_ptr())
        return x @ w

    subject = _subject(Inline(noting), workload=Product(cache_state="cold"))
    assert subject.check().right
    found = subject.profile()
    assert (found.cache_state, found.notes) == ("cold", ("sizes are scripted",))
    profiled = seen[-found.calls - 1 : -1]  # one more call says what it allocates
    assert len(set(profiled[:6])) == 6
    assert profiled[:6] == profiled[6:12]


def test_a_case_too_small_for_a_cold_round_is_profiled_hot(monkeypatch: pytest.MonkeyPatch) -> None:
    """And says so."""
    monkeypatch.setattr(live_profile, "cold_size", lambda device: ColdSize(1 << 40))
    subject = _subject(Inline(_honest), workload=Product(cache_state="cold"))
    assert subject.check().right
    found = subject.profile()
    assert found.cache_state == "hot"
    assert found.notes[0].startswith(
        "profiled with its inputs in the cache: test.inline on product-s16-f32 is too small"
    )


def test_a_case_whose_time_says_nothing_is_not_profiled() -> None:
    """As Triton's interpreter."""
    subject = _subject(Inline(_honest, times_on_cpu=False))
    assert subject.check().right
    with pytest.raises(CaseFailedError, match="its time there says nothing"):
        subject.profile()


def test_it_is_a_subject() -> None:
    """The real subject has what the worker's server asks for."""
    assert isinstance(TorchSubject(Inline(_honest), Product(), CPU, Seeds(0, 1, 2)), Subject)


def test_an_honest_backend_is_proven_timed_and_proven_again() -> None:
    """Right on timed and planted inputs, timed by the host, right in the last run, memory and config recorded."""
    subject = _subject(Inline(_honest))
    report = subject.check()
    assert report.problems == ()
    assert len({figure.check for figure in report.figures}) == 2
    samples = _blocks(subject)
    assert (len(samples.block_us), samples.timer, samples.cache_state) == (3, "host", "hot")
    final = subject.finish()
    assert final.check.right
    assert final.peak_memory_bytes == 16 * 16 * 4
    assert final.config == {"block": "16"}


def test_nothing_is_timed_before_a_passing_check() -> None:
    """Without a check, and after a failed one, a time is refused."""
    subject = _subject(Inline(_honest))
    with pytest.raises(NotProvenRightError, match=r"test\.inline on product-s16-f32 may not be timed: no check of it"):
        _blocks(subject)
    wrong = _subject(Inline(lambda x, w: x @ w * 1.01))
    assert not wrong.check().right
    with pytest.raises(NotProvenRightError):
        _blocks(wrong)


def test_timed_inputs_are_back_after_the_check() -> None:
    """What is timed is the workload's own inputs, not the planted ones of the check."""
    seen: list[torch.Tensor] = []

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        seen[:] = [x.clone()]
        return x @ w

    subject = _subject(Inline(call))
    subject.check()
    _blocks(subject)
    timed, _ = Product().make_inputs(timed_seed(Product()), "cpu", planted=False)
    assert torch.equal(seen[0], timed)


def test_a_backend_that_writes_nothing_is_wrong() -> None:
    """A result that was allocated but never written does not pass for the one computed before it."""
    assert not _subject(Inline(lambda x, w: torch.empty(16, 16))).check().right


def test_a_backend_that_keeps_its_first_result_is_wrong() -> None:
    """A memoised result is right on the inputs it was made from and wrong on fresh ones."""
    kept: list[torch.Tensor] = []

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        if not kept:
            kept.append(x @ w)
        return kept[0].clone()

    assert not _subject(Inline(call)).check().right


def test_a_backend_that_changes_its_input_is_wrong() -> None:
    """The right result over changed inputs is a problem that says so."""

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        out = x @ w
        x.mul_(1.5)
        return out

    report = _subject(Inline(call)).check()
    assert not report.right
    assert any("changed" in problem for problem in report.problems)


def test_a_backend_that_goes_wrong_while_timed_is_caught_at_the_end() -> None:
    """Right when checked, wrong afterwards: the last run is judged on fresh inputs."""
    tired = [False]

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x @ w * (0.5 if tired[0] else 1.0)

    subject = _subject(Inline(call))
    assert subject.check().right
    _blocks(subject)
    tired[0] = True
    final = subject.finish()
    assert not final.check.right
    assert final.check.problems


def test_unsupported_reasons_come_from_the_backend() -> None:
    """A backend's reasons are passed on; nothing is prepared for them."""
    subject = TorchSubject(Inline(_honest), Product(size=15), CPU, Seeds(0, 1, 2))
    assert subject.unsupported_reasons() == ["odd sizes are not supported"]
    assert TorchSubject(Inline(_honest), Product(), CPU, Seeds(0, 1, 2)).unsupported_reasons() == []


def test_interpreted_backends_are_checked_but_not_timed() -> None:
    """Where Triton interprets, a case is proven and its time refused, with the reason in words."""
    interpreted = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="test", interpreted=True)
    subject = _subject(Inline(_honest, times_on_cpu=False), interpreted)
    reason = "interpreted: Triton runs without compiling here; its time says nothing"
    assert subject.not_timed_reason() == reason
    assert subject.check().right
    with pytest.raises(CaseFailedError, match=f"is not timed {reason}"):
        _blocks(subject)
    final = subject.finish()
    assert final.peak_memory_bytes is None
    assert final.config["peak_memory"] == f"not measured {reason}"


def test_reasons_not_to_time() -> None:
    """Only a backend that says its CPU time says nothing is not timed, and only on a CPU."""
    keeps_off = Inline(_honest, times_on_cpu=False)
    on_cpu = TorchSubject(keeps_off, Product(), CPU, Seeds(0, 1, 2))
    assert on_cpu.not_timed_reason().startswith("on a CPU: test.inline says that its time there says nothing")
    assert TorchSubject(keeps_off, Product(), GPU, Seeds(0, 1, 2)).not_timed_reason() == ""
    assert TorchSubject(Inline(_honest), Product(), CPU, Seeds(0, 1, 2)).not_timed_reason() == ""


def test_out_of_memory_is_said_and_the_next_case_runs() -> None:
    """A call that runs out of memory is named with its workload, and another case still works."""
    subject = TorchSubject(Inline(_honest), Product(size=2**24), CPU, Seeds(0, 1, 2))
    with pytest.raises(CaseFailedError, match=r"out of memory: test\.inline on product-s16777216-f32: ") as caught:
        subject.prepare()
    assert caught.value.out_of_memory
    assert _subject(Inline(_honest)).check().right


def test_finish_frees_the_case() -> None:
    """After finish no input is alive any more, and nothing more can be asked."""
    subject = _subject(Inline(_honest))
    subject.check()
    _blocks(subject)
    inputs = [weakref.ref(tensor) for tensor in subject._ready.tensors]
    subject.finish()
    gc.collect()
    assert [tensor() for tensor in inputs] == [None, None]
    with pytest.raises(CaseFailedError, match=r"is not prepared: call prepare\(\) first, and nothing after finish"):
        subject.check()


@pytest.mark.gpu
def test_a_case_on_a_gpu_is_replayed_and_judged_on_fresh_inputs() -> None:
    """Check, graph-replayed blocks, more blocks, a last replay on inputs never seen before; then memory is free."""
    before = torch.cuda.memory_allocated()
    subject = _subject(Inline(_honest), GPU, Product(size=256))
    assert subject.check().right
    samples = subject.measure_blocks(30, 1000.0, 120_000.0)
    assert (samples.timer, samples.note, samples.rejected_blocks) == ("graph", "", 0)
    assert 7 <= len(samples.block_us) <= 3 * 30  # short calls are drawn at three times as many places
    assert 1 <= len(subject.measure_blocks(1, 1000.0, 120_000.0).block_us) <= 3
    final = subject.finish()
    assert final.check.problems == ()
    assert final.peak_memory_bytes == 256 * 256 * 4
    getattr(torch._C, "_cuda_clearCublasWorkspaces")()  # noqa: B009 - private, and 32 MiB for each stream
    assert torch.cuda.memory_allocated() - before < 8 << 20  # references


def _baked_scalar(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Right when called; a replay repeats the number of its capture, because nothing reads x on the GPU."""
    if torch.cuda.is_current_stream_capturing():
        return x.new_full((256, 256), 3.0)
    return x @ w


@pytest.mark.gpu
def test_a_replay_that_is_wrong_is_its_own_message() -> None:
    """A call that is right eagerly and wrong replayed is refused before any time is taken."""
    subject = _subject(Inline(_baked_scalar), GPU, Product(size=256))
    assert subject.check().right
    with pytest.raises(TimedWrongError, match="eager right, replay wrong: ") as caught:
        subject.measure_blocks(7, 1000.0, 120_000.0)
    assert not caught.value.report.right
    with pytest.raises(NotProvenRightError):
        subject.measure_blocks(7, 1000.0, 120_000.0)


@pytest.mark.gpu
def test_a_call_that_cannot_be_captured_is_timed_by_events() -> None:
    """A synchronising call is timed by events with the reason; a profiler then finds the copy to the host."""

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x.sum().item()
        return x @ w

    subject = _subject(Inline(call), GPU, Product(size=256))
    assert subject.check().right
    samples = subject.measure_blocks(7, 200.0, 120_000.0)
    assert samples.timer == "event"
    assert samples.note.startswith("graph capture failed: the call synchronises with the host")
    final = subject.finish()
    assert final.spent
    assert "what ran: the call copied 4 bytes between host and device" in final.check.problems[0]


@pytest.mark.gpu
def test_a_replay_that_goes_wrong_later_is_caught_at_the_end() -> None:
    """What a graph reads may change under it: the last replay is judged, not only the first."""
    factor = torch.ones(1, device="cuda")
    subject = _subject(Inline(lambda x, w: (x @ w) * factor), GPU, Product(size=256))
    assert subject.check().right
    subject.measure_blocks(7, 1000.0, 120_000.0)
    factor.fill_(0.5)
    assert not subject.finish().check.right


@pytest.mark.gpu
@pytest.mark.parametrize("cache_state", ["hot", "cold"])
def test_a_gpu_s_kernels_are_profiled(cache_state: str) -> None:
    """Every call's kernels with their sizes; the profiler's own total of them is the same within rounding."""
    subject = _subject(Inline(_honest), GPU, Product(size=1024, cache_state=cache_state))
    assert subject.check().right
    found = subject.profile()
    assert sum(len(kernel.durations_ns) for kernel in found.kernels if kernel.shape.kind == "kernel") >= found.calls
    assert found.total_ns == pytest.approx(found.profiler_ns, rel=0.01)
    assert (found.cache_state, found.notes) == (cache_state, ())
    assert any("Launch" in name for name in found.host_ns)
    if torch.version.hip is None:
        assert all(kernel.shape.workgroups for kernel in found.kernels if kernel.shape.kind == "kernel")
