"""The canary through pytest: what a machine that has moved makes of a slowdown."""

from __future__ import annotations

import json

import pytest

from pytest_attnperf.testing.project import WORKLOAD, FakeProject


@pytest.fixture
def slower(attnperf_project: FakeProject) -> FakeProject:
    """A case recorded at 100 us beside canaries of 100 us, that now takes 110 us."""
    attnperf_project.script["process_sd"] = 0.002
    attnperf_project.device(canary={"gemm": 100.0, "copy": 100.0})
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.store_baselines()
    attnperf_project.backend("fake.a", time_us=110.0)
    return attnperf_project


def test_the_canary_is_stored_with_the_baseline(slower: FakeProject) -> None:
    """Seven processes of both canaries stand once in the file, and the entry names them."""
    content = json.loads(slower.baseline().read_text())
    ((identity, stored),) = content["canaries"].items()
    assert {name: len(processes) for name, processes in stored.items()} == {"gemm": 7, "copy": 7}
    assert [entry["canary"] for entry in content["entries"].values()] == [identity]


def test_a_machine_that_is_as_much_slower_is_environment(slower: FakeProject) -> None:
    """A case 10 % slower beside canaries 10 % slower is ENVIRONMENT, which names the canary and passes."""
    slower.device(canary={"gemm": 110.0, "copy": 110.0})
    result = slower.run("--attnperf")
    assert result.ret == 0, result.stdout.str()
    assert slower.verdicts() == {"fake.a": "ENVIRONMENT"}
    result.stdout.re_match_lines(
        [rf"ENVIRONMENT: prefill/fake\.a/{WORKLOAD}: .*but the canary \w+ is (9|10)\.\d % slower, too: the machine.*"]
    )
    (case,) = slower.results()["cases"]
    assert {name: len(processes) for name, processes in case["canary"].items()} == {"gemm": 3, "copy": 3}
    assert any("corrected for that, the case is" in reason for reason in case["reasons"])


def test_a_machine_that_did_not_move_leaves_slower(slower: FakeProject) -> None:
    """Beside canaries that take what they took the slowdown is the code's: SLOWER, and the canary is named."""
    result = slower.run("--attnperf")
    assert slower.verdicts() == {"fake.a": "SLOWER"}
    result.stdout.fnmatch_lines(["*the canary did not move (copy *, gemm *)*"])


def test_a_machine_that_is_faster_excuses_nothing(slower: FakeProject) -> None:
    """Beside canaries that are 10 % faster a slowdown is SLOWER all the same."""
    slower.device(canary={"gemm": 90.0, "copy": 90.0})
    result = slower.run("--attnperf")
    assert slower.verdicts() == {"fake.a": "SLOWER"}
    result.stdout.fnmatch_lines(["*the canary * is * % faster than stored*"])


def test_a_machine_that_is_a_little_slower_does_not_explain_much(slower: FakeProject) -> None:
    """Beside canaries 3 % slower a case 10 % slower is SLOWER: 7 % of it is not the machine's."""
    slower.device(canary={"gemm": 103.0, "copy": 103.0})
    slower.run("--attnperf")
    assert slower.verdicts() == {"fake.a": "SLOWER"}
    (case,) = slower.results()["cases"]
    (reason,) = [reason for reason in case["reasons"] if "canary" in reason]
    assert "corrected for that, the case is +6." in reason or "corrected for that, the case is +7." in reason


def test_the_first_look_has_its_canary(slower: FakeProject) -> None:
    """A case that needs no second look carries the canary of the gate's own process."""
    slower.backend("fake.a", time_us=100.0)
    slower.run("--attnperf")
    (case,) = slower.results()["cases"]
    assert (case["verdict"], {name: len(taken) for name, taken in case["canary"].items()}) == (
        "SAME",
        {"gemm": 1, "copy": 1},
    )
