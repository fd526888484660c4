"""Functions that get one cost up by a fifth or more, and twins that do not, gated on a CPU as a user types it."""

from __future__ import annotations

import pytest

from pytest_attnperf.testing.project import full_results

SUITE = """
import os, time
import pytest
import torch

WORSE = {worse}
KEPT = []


def make_inputs(seed):
    return torch.randn(64, 64, generator=torch.Generator().manual_seed(seed))


def plain(tensor):
    return torch.relu(tensor * 2)


def spin(ms):
    end = time.perf_counter() + ms / 1e3
    while time.perf_counter() < end:
        pass


def peak_bytes(tensor):
    spare = torch.empty(64 * 64 * (5 + WORSE))  # freed again before the result is made: the peak is what differs
    del spare
    return tensor.mul(2).relu_()


def allocations(tensor):
    for _ in range(4 + WORSE):
        torch.empty(1)
    return tensor.mul(2).relu_()


def same_peak(tensor):
    spare = torch.empty(64 * 64 * 5)  # a temporary of the same size, whichever way it is asked for
    del spare
    return tensor.mul(2).relu_()


def kept_bytes(tensor):
    spare = torch.empty(2**18)  # 1 MiB a call, which the worse one keeps
    if WORSE:
        KEPT.append(spare)
    return tensor.mul(2).relu_()


def host_us(tensor):
    spin(2.0 * (1.3 if WORSE else 1))
    return tensor.mul(2).relu_()


def first_call_ms(tensor):
    if not hasattr(first_call_ms, "called"):
        first_call_ms.called = True
        spin(300 * (1.3 if WORSE else 1))
    return tensor.mul(2).relu_()


def compile_ms(tensor):
    if not hasattr(compile_ms, "compiled"):
        compile_ms.compiled = os.path.join(os.environ.get("TRITON_CACHE_DIR", "."), "kernel")
        if not os.path.exists(compile_ms.compiled):  # as compilers do: what a cache holds takes no time
            spin(300 * (1.3 if WORSE else 1))
            open(compile_ms.compiled, "w").close()
    return tensor.mul(2).relu_()


COSTS = {{"peak_bytes": 10, "allocations": 10, "kept_bytes": 0, "host_us": 10, "first_call_ms": 10, "compile_ms": 10}}


@pytest.mark.parametrize("name", {names})
def test_cost(attnperf, name):
    costs = {{name: COSTS[name]}} if name in COSTS else {{"peak_bytes": 10, "allocations": 0, "kept_bytes": 0}}
    attnperf.gate(name, globals()[name], reference=plain, inputs=make_inputs, costs=costs)
"""
COUNTED = ("peak_bytes", "allocations", "kept_bytes")
TIMED = ("host_us", "first_call_ms", "compile_ms")


def judge(pytester: pytest.Pytester, names: tuple[str, ...]) -> dict[int, dict[str, tuple[str, str, str]]]:
    """Records the lean functions of these names, and gates them unchanged (0) and worse (1): name -> verdict, summary
    and notes."""
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(test_costs=SUITE.format(worse=0, names=list(names)))
    typed = ("-p", "no:randomly", "--attnperf-device=cpu", "--attnperf-effort=low", "--attnperf-override=threshold=100")
    recorded = pytester.runpytest_subprocess(*typed, "--update-baselines", timeout=900)
    assert recorded.ret == 0, recorded.stdout.str()
    found: dict[int, dict[str, tuple[str, str, str]]] = {}
    for worse in (0, 1):
        pytester.makepyfile(test_costs=SUITE.format(worse=worse, names=list(names)))
        pytester.runpytest_subprocess(*typed, "--attnperf", timeout=900)
        cases = full_results(pytester.path / ".attnperf" / "results.json")["cases"]
        found[worse] = {
            case["key"]["workload"].partition("[")[2][:-1]: (case["verdict"], str(case["summary"]), str(case["notes"]))
            for case in cases
        }
    assert "GREW" not in {verdict for verdict, _, _ in found[0].values()}, found[0]
    return found


@pytest.mark.soak
def test_more_memory_and_memory_that_stays_are_found(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, own_process: None
) -> None:
    """A fifth more of peak memory, a fifth more allocations, and 1 MiB that each call keeps are GREW, each by its own
    cost. Unchanged functions are not, nor is one with a temporary of the same size."""
    monkeypatch.delenv("CI", raising=False)
    worse = judge(pytester, (*COUNTED, "same_peak"))[1]
    for name in COUNTED:
        assert worse[name][0] in ("GREW", "SLOWER"), worse  # memory that is new to the process takes time, too
        assert f"cost {name} grew" in worse[name][1]
    assert worse["same_peak"][0] != "GREW"


@pytest.mark.soak
@pytest.mark.parametrize("name", TIMED)
def test_more_time_of_the_host_is_found(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, own_process: None, name: str
) -> None:
    """A call, a first call and a compilation that take the host nearly a third longer are GREW, though a cache on disk
    holds what was compiled. On a busy machine they may be said not to be comparable instead."""
    monkeypatch.delenv("CI", raising=False)
    worse = judge(pytester, (name,))[1]
    grew, summary, notes = worse[name]
    assert (grew == "GREW" and summary.startswith(f"cost {name} grew")) or "is not compared" in notes, worse
    print(worse)
