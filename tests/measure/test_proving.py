from __future__ import annotations

import cProfile

import pytest
import torch

from pytest_attnperf.measure import proving
from pytest_attnperf.measure.proving import Prover, TimedWrongError, describe_shared_code, list_shared_functions
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend


def make_inputs(seed: int) -> tuple[torch.Tensor, ...]:
    """x and w, different for each seed."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(16, 16, generator=generator) for _ in range(2))


WORKLOAD = AdHoc("product", make_inputs, torch.matmul)


def prover() -> Prover:
    """Of an honest product on a CPU."""
    backend = CallableBackend("test.product", torch.matmul)
    return Prover(backend, WORKLOAD, DeviceInfo("cpu", "cpu-x86_64", "test"), Seeds(0, 1, 2))


def test_a_right_replay_costs_time_that_is_kept() -> None:
    """It is judged on the check's inputs, and nothing but what it took is left behind."""
    own = prover()
    prepared = own.backend.prepare(WORKLOAD, make_inputs(0))
    seen: list[torch.Tensor] = []

    def replay() -> torch.Tensor:
        seen.append(prepared.tensors[0].clone())
        return torch.matmul(*prepared.tensors)

    own.prove_replay(own.make_judge(prepared), replay, poisoned=True)
    assert torch.equal(seen[0], WORKLOAD.make_inputs(1, "cpu", planted=True)[0])
    assert own.cost.parts["call"] > 0
    assert own.cost.problems == ()


def test_a_wrong_replay_says_that_the_eager_call_was_right() -> None:
    """Every problem is named as the replay's, and it costs nothing that a final report would say."""
    own = prover()
    prepared = own.backend.prepare(WORKLOAD, make_inputs(0))
    with pytest.raises(TimedWrongError, match=r"^eager right, replay wrong: replay: ") as caught:
        own.prove_replay(own.make_judge(prepared), lambda: torch.matmul(*prepared.tensors) * 2, poisoned=True)
    assert not caught.value.report.right
    assert own.cost.seconds == 0


def test_timed_inputs_come_back_into_the_same_memory() -> None:
    """Whatever stood there; the address stays."""
    own = prover()
    prepared = own.backend.prepare(WORKLOAD, make_inputs(5))
    address = prepared.tensors[0].data_ptr()
    own.load_timed_inputs(prepared)
    assert torch.equal(prepared.tensors[0], make_inputs(0)[0])
    assert prepared.tensors[0].data_ptr() == address


def helper(x: torch.Tensor) -> torch.Tensor:
    """What both may use."""
    return torch.softmax(x, -1)


def kernel() -> torch.Tensor:
    """By the helper."""
    return helper(torch.ones(3))


def plain() -> torch.Tensor:
    """By torch alone, which everybody shares."""
    return torch.nn.functional.softmax(torch.ones(3), dim=-1)


def test_code_that_both_reach_is_named() -> None:
    """A reference that calls what the kernel calls is told of, with the function and where it stands."""
    (found,) = list_shared_functions(kernel, lambda: helper(torch.zeros(3)))
    assert found.startswith("helper (test_proving.py:")
    assert "a fault there is not detectable" in describe_shared_code([found])


def test_torch_is_shared_by_everybody() -> None:
    """Nothing is said of torch, the standard library, and code that only one of both reaches."""
    assert list_shared_functions(kernel, plain) == []
    assert list_shared_functions(plain, plain) != []
    assert describe_shared_code([]) == ""


def test_a_profiler_goes_on() -> None:
    """A run under cProfile is profiled before and behind it, and nothing breaks."""
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        list_shared_functions(kernel, plain)
        plain()
    finally:
        profiler.disable()
    seen = {getattr(entry.code, "co_name", "") for entry in profiler.getstats()}
    assert {"plain"} <= seen


def test_a_long_list_is_cut() -> None:
    """Three are named, the rest counted."""
    assert "a, b, c and 2 more;" in describe_shared_code(["a", "b", "c", "d", "e"])


def test_a_waiting_process_keeps_references_in_a_share_of_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of its last case are freed beyond a 64th; where memory is not known, all stay for the next backend."""
    references = proving.RecordedReferences()
    monkeypatch.setattr(proving, "_references", references)
    inputs = WORKLOAD.make_inputs(0, "cpu", planted=False)
    expected = references.compute_expected(WORKLOAD, inputs, seed=0, planted=False)
    for memory_bytes, is_kept in ((0, True), (64 * expected.count_bytes(), True), (64, False)):
        proving.free_idle_memory(memory_bytes)
        again = references.compute_expected(WORKLOAD, inputs, seed=0, planted=False)
        assert (again is expected) == is_kept
