"""GatedCosts beside the time, typed as a user types them."""

from __future__ import annotations

import json

import pytest

from pytest_attnperf.cli import main
from pytest_attnperf.testing.project import FakeProject, full_results

COSTS = ', costs={"peak_bytes": 0, "allocations": 10}'

GATED = """
import torch

def make_inputs(seed):
    return torch.randn(64, 64, generator=torch.Generator().manual_seed(seed))

def plain(tensor):
    return torch.relu(tensor * 2)

def lean(tensor):
    return tensor.mul(2).relu_()

def wasteful(tensor):
    spare = [tensor.clone() for _ in range(4)]
    return lean(spare[0])

def test_mine(attnperf):
    attnperf.gate("mine", {fn}, reference=plain, inputs=make_inputs,
                  costs={{"peak_bytes": 5, "allocations": 0, "elements": (lambda out: out.numel(), 0)}})
"""


def test_a_case_that_takes_more_memory_grew(
    attnperf_project: FakeProject, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recorded with one cost, gated with a higher one: GREW, exit status 1, the words of `explain`; the stored cost
    passes, and recording again accepts the growth."""
    attnperf_project.suite(["prefill-b1-s64-h1-d16-f16"], COSTS)
    attnperf_project.backend("fake.a", time_us=100.0, costs={"peak_bytes": 1000.0, "allocations": 2.0})
    attnperf_project.store_baselines()
    stored = json.loads(attnperf_project.baseline().read_text())["entries"]
    (entry,) = stored.values()
    assert entry["cost_limits"] == {"peak_bytes": 0.0, "allocations": 10.0}
    assert [process["costs"] for process in entry["processes"]] == [{"allocations": 2.0, "peak_bytes": 1000.0}] * 7
    assert attnperf_project.run("--attnperf").ret == 0
    attnperf_project.backend("fake.a", time_us=100.0, costs={"peak_bytes": 3000.0, "allocations": 2.0})
    result = attnperf_project.run("--attnperf")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["*GREW: prefill/fake.a/*", "*peak_bytes grew by 200 %: 3000 bytes against 1000 bytes s*"]
    )
    assert attnperf_project.verdicts() == {"fake.a": "GREW"}
    monkeypatch.chdir(attnperf_project.path)
    capsys.readouterr()
    main(["explain", "fake.a"])
    text = " ".join(capsys.readouterr().out.split())
    assert "its time does not fail it" in text
    assert "peak_bytes 3000 bytes, 3000 bytes, 3000 bytes, 3000 bytes; may grow by 0 %" in text
    assert "pytest --update-baselines" in text
    assert main(["gate", "--results", ".attnperf/results.json"]) == 1
    assert "GREW" in capsys.readouterr().out


def test_costs_that_no_test_gates_are_not_stored(attnperf_project: FakeProject) -> None:
    """Without `costs` an entry has no field of them, and more memory fails nothing."""
    attnperf_project.backend("fake.a", time_us=100.0, costs={"peak_bytes": 1000.0})
    attnperf_project.store_baselines()
    assert "costs" not in attnperf_project.baseline().read_text()
    attnperf_project.backend("fake.a", time_us=100.0, costs={"peak_bytes": 9000.0})
    assert attnperf_project.run("--attnperf").ret == 0


def test_an_invalid_marker_is_one_line(attnperf_project: FakeProject) -> None:
    """A misspelt cost fails its test before anything is measured, and names the right one."""
    attnperf_project.suite(["prefill-b1-s64-h1-d16-f16"], ', costs={"peak_byte": 0}')
    attnperf_project.backend("fake.a", time_us=100.0)
    result = attnperf_project.run("--attnperf")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    line = next(line for line in result.outlines if "peak_byte'" in line)
    assert "did you mean 'peak_bytes'?" in line


@pytest.mark.soak
def test_gate_takes_costs_of_a_real_function(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, own_process: None
) -> None:
    """A lean function is recorded with its costs, one of them the test's own; the wasteful one that returns the same
    is GREW by memory and allocations, not by its elements."""
    monkeypatch.delenv("CI", raising=False)
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(test_mine=GATED.format(fn="lean"))
    arguments = ("-p", "no:randomly", "--attnperf-device=cpu")
    recorded = pytester.runpytest_subprocess(*arguments, "--update-baselines", timeout=300)
    assert recorded.ret == 0, recorded.stdout.str()
    again = pytester.runpytest_subprocess(*arguments, "--attnperf", timeout=300)
    again.assert_outcomes(passed=1)
    pytester.makepyfile(test_mine=GATED.format(fn="wasteful"))
    result = pytester.runpytest_subprocess(*arguments, "--attnperf", timeout=300)
    result.assert_outcomes(failed=1)
    (case,) = full_results(pytester.path / ".attnperf" / "results.json")["cases"]
    said = " ".join(reason if isinstance(reason, str) else reason["text"] for reason in case["reasons"])
    assert "allocations grew by" in said
    assert "peak_bytes grew by" in said
    assert "elements grew" not in said
