"""GatedCosts of a real call on the CPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_attnperf.backends import Prepared
from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure.call_costs import Allocations, count_allocations, measure_costs, run_and_wait
from pytest_attnperf.records.costs import GatedCosts, parse_costs

TENSOR = torch.ones(1024)


def bound(call: Callable[..., Any], setup: Callable[..., tuple[Any, ...]] | None = None) -> Prepared:
    """A prepared call of one tensor."""
    return Prepared(
        call=call, tensors=(TENSOR,), convert=lambda inputs: inputs, outputs=lambda raw: {"out": raw}, setup=setup
    )


def measured(given: dict[str, Any], prepared: Prepared, **known: float | None) -> dict[str, float]:
    """The costs of a CPU call."""
    return measure_costs(parse_costs(given, "here"), prepared, "cpu", known)


def test_host_time_is_that_of_the_call_without_its_setup() -> None:
    """A call that sleeps 2 ms takes 2 ms of the host; 20 ms of making its arguments do not count."""

    def prepare(tensor: torch.Tensor) -> tuple[torch.Tensor]:
        time.sleep(0.020)
        return (tensor,)

    values = measured({"host_us": 0}, bound(lambda _tensor: time.sleep(0.002), prepare))
    assert 2_000 <= values["host_us"] < 15_000
    assert values["host_loop_us"] > 0
    assert set(values) == {"host_us", "host_loop_us"}


def test_allocations_of_one_call_are_counted() -> None:
    """Two results in one call are two allocations more than none; costs that nobody gates are not measured."""
    none = measured({"allocations": 0}, bound(lambda tensor: tensor))["allocations"]
    two = measured({"allocations": 0}, bound(lambda tensor: (tensor + tensor, tensor * tensor)))
    assert (none, two) == (0, {"allocations": 2.0})
    assert measured({}, bound(lambda tensor: tensor)) == {}


def test_what_is_known_already_is_taken_over() -> None:
    """Peak memory and the first call were measured before; others of them stay out."""
    values = measured({"peak_bytes": 0}, bound(lambda tensor: tensor), peak_bytes=4096, first_call_ms=3.0)
    assert values == {"peak_bytes": 4096}


def test_bytes_that_calls_leave_behind() -> None:
    """A list that grows by 1 MiB a call keeps 1 MiB; a temporary of 1 MiB, a filled cache and a cycle keep nothing."""
    kept: list[torch.Tensor] = []
    filled: dict[int, torch.Tensor] = {}

    def leak(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(torch.zeros(2**18))
        return tensor + 1

    def cycle(tensor: torch.Tensor) -> torch.Tensor:
        ring: list[object] = [torch.zeros(2**18)]
        ring.append(ring)
        return tensor + 1

    def cache(tensor: torch.Tensor) -> torch.Tensor:
        return filled.setdefault(0, torch.zeros(2**18))[:1] + tensor

    cache(TENSOR)
    calls = {"leak": leak, "temporary": lambda tensor: torch.zeros(2**18)[:1] + tensor, "cycle": cycle, "cache": cache}
    found = {name: measured({"kept_bytes": 0}, bound(call))["kept_bytes"] for name, call in calls.items()}
    assert found == {"leak": 2.0**20, "temporary": 0.0, "cycle": 0.0, "cache": 0.0}


def test_compiling_is_what_a_first_call_takes_beyond_a_later_one() -> None:
    """Building counts whole; of a first call of 50 ms, whose later calls take 20 ms, the rest does."""
    call = bound(lambda _tensor: time.sleep(0.020))
    value = measured({"compile_ms": 0}, call, compile_ms=100.0, first_call_ms=50.0)["compile_ms"]
    assert 115 <= value <= 131
    assert measured({"compile_ms": 0}, call, compile_ms=100.0, first_call_ms=1.0)["compile_ms"] == 100.0


def test_a_cost_of_the_tests_own_is_computed_from_the_result() -> None:
    """The function gets what the call returned."""
    values = measured({"sum": (lambda result: result.sum(), 1)}, bound(lambda tensor: tensor * 2))
    assert values == {"sum": 2048.0}


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        (lambda _result: 1 / 0, r"the function of costs\['mine'\] raised: .*test_call_costs.py:\d+: ZeroDivisionError"),
        (lambda _result: "many", r"the function of costs\['mine'\] returned 'many'; expected a number, 0 or more"),
        (lambda _result: float("nan"), r"the function of costs\['mine'\] returned nan; expected a number"),
        (lambda _result: -2, r"returned -2; expected"),
    ],
)
def test_a_function_that_gives_no_number_breaks_the_case(metric: Callable[[Any], Any], said: str) -> None:
    """An error, a text, NaN and a negative number are named with the cost."""
    with pytest.raises(CaseFailedError, match=said):
        measure_costs(GatedCosts({"mine": 0.0}, {"mine": metric}), bound(lambda tensor: tensor), "cpu", {})


def test_a_cost_that_cannot_be_known_here_breaks_the_case() -> None:
    """Peak memory that this torch cannot count is no zero."""
    with pytest.raises(CaseFailedError, match="costs has 'peak_bytes', which this torch cannot measure here"):
        measured({"peak_bytes": 0}, bound(lambda tensor: tensor), peak_bytes=None)


def test_the_first_call_is_timed_until_it_ends() -> None:
    """Work of 5 ms takes 5 ms, and what it returns comes back."""
    result, took_ms = run_and_wait(lambda: time.sleep(0.005) or "done", "cpu")
    assert result == "done"
    assert 5 <= took_ms < 1000


def twice(x: torch.Tensor) -> torch.Tensor:
    """One buffer that goes at once, and one that is given back."""
    return (x + x).relu()


def test_each_request_is_counted_with_its_bytes() -> None:
    """Memory that is given back within the call counts like the result; a view asks for none."""
    x = torch.zeros(64, 32)
    size = x.numel() * 4
    assert count_allocations(lambda: twice(x), "cpu") == Allocations(2, 2 * size)
    assert count_allocations(lambda: x[1:].t(), "cpu") == Allocations(0, 0)


def test_a_torch_without_its_profiler_cannot_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing counts memory on a CPU, nothing is said."""
    monkeypatch.setattr(torch._C._autograd, "kineto_available", lambda: False)
    assert count_allocations(lambda: torch.zeros(8), "cpu") is None


@pytest.mark.gpu
def test_each_request_is_counted_on_a_gpu() -> None:
    """The caching allocator is asked twice; sizes are those asked for, not those of its blocks."""
    x = torch.zeros(64, 32, device="cuda")
    twice(x)
    assert count_allocations(lambda: twice(x), "cuda") == Allocations(2, 2 * x.numel() * 4)
    assert count_allocations(lambda: x[1:].t(), "cuda") == Allocations(0, 0)


@pytest.mark.gpu
def test_a_call_that_waits_for_the_device_takes_its_time_of_the_host() -> None:
    """The same products take the host longer where the call waits for them, which is what host_us sees."""
    large = torch.ones(4096, 4096, device="cuda")

    def launch(_tensor: torch.Tensor) -> torch.Tensor:
        return large @ large

    def wait(_tensor: torch.Tensor) -> torch.Tensor:
        out = large @ large
        torch.cuda.synchronize()
        return out

    given = parse_costs({"host_us": 0}, "here")
    launched, waited = (measure_costs(given, bound(call), "cuda", {})["host_us"] for call in (launch, wait))
    assert waited > 3 * launched


@pytest.mark.gpu
def test_bytes_that_calls_leave_behind_on_a_gpu() -> None:
    """A list that grows by 1 MiB a call keeps 1 MiB a call; a temporary of that size keeps nothing."""
    kept: list[torch.Tensor] = []
    leak = bound(lambda tensor: kept.append(torch.zeros(2**18, device="cuda")) or tensor)
    temporary = bound(lambda _tensor: torch.zeros(2**18, device="cuda")[:1] + 1)
    given = parse_costs({"kept_bytes": 0}, "here")
    assert measure_costs(given, leak, "cuda", {})["kept_bytes"] == 2.0**20
    assert measure_costs(given, temporary, "cuda", {})["kept_bytes"] == 0.0
