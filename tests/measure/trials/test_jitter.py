"""Races show where a neighbour computes and launches are delayed, and deterministic calls are right all the same."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from pytest_attnperf.measure.flight_recorder import launch
from pytest_attnperf.measure.proving import Prover
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.trials import TrialCase, Tried, jitter, run_trials
from pytest_attnperf.measure.trials.jitter import CpuNeighbour, Delays
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.records.trials import TrialEnding
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend

UNHURRIED = 60.0


def make_inputs(seed: int) -> tuple[torch.Tensor, ...]:
    """Two matrices, other ones for each seed."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(16, 16, generator=generator) for _ in range(2))


def make_case(fn: Callable[..., Any]) -> TrialCase:
    """The product of two matrices as `fn` computes it, on a CPU."""
    workload, backend = AdHoc("product", make_inputs, torch.matmul), CallableBackend("test.product", fn)
    prover = Prover(backend, workload, DeviceInfo("cpu", "cpu-x86_64", "test"), Seeds(0, 1, 2))
    return TrialCase(prover, backend.prepare(workload, workload.make_inputs(0, "cpu", planted=False)))


def try_out(fn: Callable[..., Any]) -> dict[str, Tried]:
    """The results of the trial by variant."""
    return {tried.result.variant: tried for tried in jitter.run_trial(make_case(fn))}


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine ends no calls and no neighbour early, and leaves no slow call out."""
    monkeypatch.setattr(jitter, "REPEATS", jitter.CallRepeats(8, 0.0, UNHURRIED))
    monkeypatch.setattr(jitter, "CALL_SECONDS_MOST", UNHURRIED)
    monkeypatch.setattr(jitter, "LIFETIME_SECONDS", UNHURRIED)


def test_an_honest_call_is_right_in_both_variants() -> None:
    """With threads or without."""
    with ThreadPoolExecutor(1) as pool:
        for fn in (torch.matmul, lambda x, w: pool.submit(torch.matmul, x, w).result()):
            found = try_out(fn)
            assert {name: tried.result.ending for name, tried in found.items()} == {
                "neighbour": TrialEnding.RIGHT,
                "delays": TrialEnding.RIGHT,
            }


def test_a_call_that_is_wrong_beside_others_is_wrong_under_a_neighbour() -> None:
    """The count of wrong calls is told, and the variant."""
    alone = threading.active_count()

    def outrun(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x @ w if threading.active_count() <= alone else (x @ w).zero_()

    found = try_out(outrun)
    assert found["neighbour"].result.ending is TrialEnding.WRONG
    assert found["neighbour"].result.why == "under neighbour: 8 of 8 calls on the same inputs are wrong"
    assert found["delays"].result.ending is TrialEnding.RIGHT


@pytest.mark.parametrize("pooled", [False, True])
def test_a_wait_with_a_limit_is_wrong_under_delays(pooled: bool) -> None:
    """A thread of its own, or of a pool that exists beforehand, is held back at one of its operators."""
    limit_seconds = Delays.LONG_SECONDS / 3
    pool = ThreadPoolExecutor(1)
    pool.submit(int).result()

    def outrun(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        out, done = torch.zeros_like(x), threading.Event()

        def compute() -> None:
            out.copy_(x @ w)
            done.set()

        if pooled:
            pool.submit(compute)
        else:
            threading.Thread(target=compute).start()
        done.wait(limit_seconds)
        return out.clone()

    found = try_out(outrun)
    pool.shutdown()
    assert found["delays"].result.ending is TrialEnding.WRONG
    assert "under delays: " in found["delays"].result.why
    assert "calls on the same inputs are wrong" in found["delays"].report.problems[0]


def test_a_slow_call_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few calls show nothing, and cost much."""
    monkeypatch.setattr(jitter, "CALL_SECONDS_MOST", 0.001)

    def slow(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        time.sleep(0.002)
        return x @ w

    for tried in try_out(slow).values():
        assert tried.result.ending is TrialEnding.LEFT_OUT
        assert "calls of up to 0.001 s are repeated" in tried.result.why


def test_a_call_that_raises_when_it_is_repeated_is_refused() -> None:
    """Already while it is timed; the case stays as it was judged."""

    def refuses(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no more")

    for tried in try_out(refuses).values():
        assert tried.result.ending is TrialEnding.REFUSED
        assert tried.result.why == "RuntimeError: no more"


def test_the_report_names_what_was_wrong() -> None:
    """A problem for a wrong variant, and a result for each."""
    calls: list[int] = []

    def sometimes(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        calls.append(0)
        return (x @ w) * (1.0 if len(calls) % 3 else 2.0)

    report = run_trials(["jitter"], make_case(sometimes))
    assert not report.right
    assert [result.trial for result in report.trials] == ["jitter", "jitter"]


def test_a_neighbour_leaves_nothing_behind() -> None:
    """Neither threads nor settings, also if the call raises."""

    def settings() -> tuple[Any, ...]:
        return torch.get_num_threads(), sys.getswitchinterval(), os.sched_getaffinity(0), threading.active_count()

    before, seen = settings(), []
    neighbour = CpuNeighbour(7)
    for _ in range(6):
        with pytest.raises(ZeroDivisionError), neighbour.disturb():
            seen.append(settings())
            raise ZeroDivisionError
        assert settings() == before
    assert all(threads > before[-1] for *_, threads in seen)
    assert len({interval for _, interval, _, _ in seen}) > 1


def test_a_neighbour_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of many operators is not slowed down in all of them."""
    monkeypatch.setattr(jitter, "LIFETIME_SECONDS", 0.0)
    before = threading.active_count()
    with CpuNeighbour(1).disturb():
        deadline = time.monotonic() + UNHURRIED
        while threading.active_count() > before and time.monotonic() < deadline:
            time.sleep(0.001)
        assert threading.active_count() == before


def test_every_launch_is_held_back_once_before_any_is_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of other threads first: what waits for them shows."""
    waited: list[float] = []
    delays = Delays(3, "cpu")
    monkeypatch.setattr(delays, "_wait", waited.append)
    held: list[str] = []

    def call() -> None:
        for name in ("a", "b"):
            waited.clear()
            with launch(name):
                held.extend([name] * (Delays.LONG_SECONDS in waited))

    def make_calls() -> None:
        thread = threading.Thread(target=torch.ones, args=(1,))
        thread.start()
        thread.join()
        call()

    with delays.count_launches():
        make_calls()
    rounds = []
    for _ in range(6):
        held.clear()
        waited.clear()
        with delays.delay_some():
            make_calls()
        rounds.append("".join(held))
    assert rounds[0] == rounds[3] == "", "the other thread's operator is first"
    assert sorted(rounds[1:3]) == sorted(rounds[4:6]) == ["a", "b"]
