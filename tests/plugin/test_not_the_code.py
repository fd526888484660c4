"""MOVED and DRIFT, typed as a user types them: slowdowns that are not the code's, and liars that claim to be one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from pytest_attnperf.testing.project import WORKLOAD, FakeProject

KERNEL = {"name": "attention", "isa_hash": "a" * 40}
TWO = [KERNEL, {"name": "combine", "isa_hash": "b" * 40}]
STORED = {"autotuned.forward": "BLOCK_M: 128, num_warps: 8", "split": "4"}
OTHER = {"autotuned.forward": "BLOCK_M: 64, num_warps: 8", "split": "4"}

Change = Callable[[FakeProject], object]


def write(project: FakeProject, name: str, text: str) -> None:
    """A file of the project's sources."""
    (project.path / "suites" / name).write_text(text)


@pytest.fixture
def recorded(attnperf_project: FakeProject) -> FakeProject:
    """A case recorded at 100 us by known machine code, with two data files among its sources."""
    write(attnperf_project, "loops.json", '{"loops": 1}')
    write(attnperf_project, "fast_path.json", "{}")
    attnperf_project.backend("fake.a", time_us=100.0, kernels=TWO, config=STORED)
    attnperf_project.store_baselines()
    return attnperf_project


def now(project: FakeProject, **script: Any) -> dict[str, Any]:
    """The case of a gating run over what is scripted now."""
    project.backend("fake.a", **{"time_us": 110.0, "kernels": TWO, "config": STORED, **script})
    project.run("--attnperf")
    (case,) = project.results()["cases"]
    return dict(case)


def test_the_same_code_on_a_slower_machine_is_moved(recorded: FakeProject) -> None:
    """10 % slower by the stored machine code, configuration and sources: MOVED, in words of its own, also where strict;
    the time counts as gated."""
    recorded.backend("fake.a", time_us=110.0, kernels=TWO, config=STORED)
    result = recorded.run("--attnperf", "--attnperf-strict")
    assert result.ret == 0, result.stdout.str()
    assert recorded.verdicts() == {"fake.a": "MOVED"}
    result.stdout.re_match_lines(
        [rf"MOVED: prefill/fake\.a/{WORKLOAD}: \+.*the machine changed \(driver, clocks, card.*"]
    )
    assert "1 moved" in result.stdout.str()
    assert " passed" not in result.stdout.lines[-1]
    assert recorded.results()["gated"] == 1
    recorded.run("--attnperf", "--attnperf-fail-on=moved").assert_outcomes(failed=1)


SOURCE_LIARS: dict[str, Change] = {
    "a loop count in the suite": lambda project: write(project, "test_prefill.py", f"{_suite(project)}LOOPS = 9\n"),
    "a loop count in a data file": lambda project: write(project, "loops.json", '{"loops": 9}'),
    "a new file that is looked for": lambda project: write(project, "override.json", '{"loops": 9}'),
    "a file that is gone": lambda project: (project.path / "suites/fast_path.json").unlink(),
    "a loop count in the conftest": lambda project: project.conftest("LOOPS = 9\n"),
}
LAUNCH_LIARS: dict[str, dict[str, Any]] = {
    "fake.grid": {"kernels": [{**KERNEL, "grid": [16, 1, 1]}, TWO[1]]},
    "fake.launches": {"kernels": [{**KERNEL, "calls": 2.0}, TWO[1]]},
    "fake.copy": {"kernels": [*TWO, {"name": "Memcpy DtoD", "kind": "copy"}]},
    "fake.code": {"kernels": [{**KERNEL, "isa_hash": "c" * 40}, TWO[1]]},
    "fake.unknown": {"kernels": [{"name": "attention"}, TWO[1]]},
    "fake.config": {"config": {**STORED, "split": "8"}},
}


def _suite(project: FakeProject) -> str:
    return (project.path / "suites/test_prefill.py").read_text()


@pytest.mark.parametrize("change", SOURCE_LIARS.values(), ids=SOURCE_LIARS)
def test_other_values_for_the_same_kernels_are_no_machine(recorded: FakeProject, change: Change) -> None:
    """What is passed shows in no launch, and comes from a source that has changed, wherever it lies: SLOWER."""
    change(recorded)
    case = now(recorded)
    assert (case["verdict"], case["fails"]) == ("SLOWER", True)


def test_other_work_is_no_machine(attnperf_project: FakeProject) -> None:
    """A larger grid, more launches, a copy beside them, other or unknown machine code, and another configuration are
    SLOWER beside a case of the same project that is MOVED."""
    for name in ("fake.honest", *LAUNCH_LIARS):
        attnperf_project.backend(name, time_us=100.0, kernels=TWO, config=STORED)
    attnperf_project.store_baselines()
    for name, script in {"fake.honest": {}, **LAUNCH_LIARS}.items():
        attnperf_project.backend(name, **{"time_us": 110.0, "kernels": TWO, "config": STORED, **script})
    attnperf_project.run("--attnperf")
    assert attnperf_project.verdicts() == {"fake.honest": "MOVED", **dict.fromkeys(LAUNCH_LIARS, "SLOWER")}


def test_the_missing_evidence_is_named(recorded: FakeProject) -> None:
    """Where sources alone keep a slowdown from being MOVED a reason says so, of changed ones and of an old entry's."""
    write(recorded, "loops.json", '{"loops": 9}')
    assert any("the sources differ from those of its entry" in why for why in now(recorded)["reasons"])
    write(recorded, "loops.json", '{"loops": 1}')
    content = json.loads(recorded.baseline().read_text())
    for entry in content["entries"].values():
        assert entry.pop("source_id")
    recorded.baseline().write_text(json.dumps(content))
    case = now(recorded)
    assert (case["verdict"], case["fails"]) == ("SLOWER", True)
    assert any("recorded without the hash of its sources" in why for why in case["reasons"])


def test_the_same_code_within_the_threshold_is_same(recorded: FakeProject) -> None:
    """Nothing is said of a machine where nothing is slower."""
    assert now(recorded, time_us=100.0)["verdict"] == "SAME"


def tuned(**pinned: Any) -> dict[str, Any]:
    """A backend whose autotuner chose differently than stored, and what it does with the stored choice."""
    chosen = {"kernels": [{**KERNEL, "isa_hash": "d" * 40}, TWO[1]], "config": OTHER}
    with_stored = {"pin": STORED, "time_us": 100.0, "kernels": TWO, "config": STORED, **pinned}
    return {**chosen, "pinned": [with_stored]}


def test_an_autotuner_that_chose_otherwise_is_drift(recorded: FakeProject) -> None:
    """With the stored choice the case is as fast as stored: DRIFT, which names both choices and both times, and passes
    unless it is asked to fail."""
    recorded.backend("fake.a", time_us=114.0, **tuned())
    result = recorded.run("--attnperf", "--attnperf-strict")
    assert result.ret == 0, result.stdout.str()
    (case,) = recorded.results()["cases"]
    assert (case["verdict"], case["fails"], len(case["second"]), len(case["pinned"])) == ("DRIFT", False, 3, 3)
    both = r"autotuned\.forward: BLOCK_M: 64 here, 128 stored; with the stored choice it takes (99|100)(\.\d+)? us"
    assert re.search(both, case["summary"])
    assert re.match(r"\+1[345]\.", case["summary"])
    assert "1 drift" in result.stdout.str()
    failing = recorded.run("--attnperf", "--attnperf-fail-on=drift")
    failing.assert_outcomes(failed=1)
    failing.stdout.fnmatch_lines(["*DRIFT*"])


DRIFTERS: dict[str, tuple[dict[str, Any], str]] = {
    "fake.slow": (tuned(time_us=114.0, kernels=[{**KERNEL, "isa_hash": "e" * 40}]), "it is slower, too"),
    "fake.gone": (tuned(fault="raise"), "its stored choice could not be timed"),
    "fake.narrow": (tuned(supported=["head_dim 16 is below 32"]), "could not be timed: head_dim 16 is below 32"),
    "fake.split": ({**tuned(), "config": {**OTHER, "split": "8"}}, ""),
}


def test_a_slowdown_that_poses_as_drift_is_slower(attnperf_project: FakeProject) -> None:
    """A kernel that is slow whatever is chosen, one whose stored choice cannot be had, and one that chose something
    else by itself fail as ever, and a reason says what the stored choice showed."""
    for name in DRIFTERS:
        attnperf_project.backend(name, time_us=100.0, kernels=TWO, config=STORED)
    attnperf_project.store_baselines()
    for name, (script, _) in DRIFTERS.items():
        attnperf_project.backend(name, **{"time_us": 114.0, **script})
    attnperf_project.run("--attnperf")
    cases = {case["key"]["backend"]: case for case in attnperf_project.results()["cases"]}
    assert {name: (case["verdict"], case["fails"]) for name, case in cases.items()} == dict.fromkeys(
        DRIFTERS, ("SLOWER", True)
    )
    for name, (_, reason) in DRIFTERS.items():
        assert any(reason in why for why in cases[name]["reasons"]), name


def test_a_change_that_makes_an_autotuner_choose_otherwise_is_slower(recorded: FakeProject) -> None:
    """With the stored choice the kernel is as fast as stored, but the sources have changed, which may be why that
    choice was not taken."""
    write(recorded, "loops.json", '{"offer": "worse"}')
    case = now(recorded, time_us=114.0, **tuned())
    assert (case["verdict"], case["fails"], case["pinned"]) == ("SLOWER", True, [])
    assert any("that may be why an autotuner chose differently" in why for why in case["reasons"])


def test_a_result_that_is_wrong_with_the_stored_choice_fails(recorded: FakeProject) -> None:
    """The look at the stored choice proves it, as every look does."""
    case = now(recorded, time_us=114.0, **tuned(fault="wrong"))
    assert (case["verdict"], case["fails"]) == ("INCORRECT", True)


def test_another_choice_on_a_slower_machine_is_moved(recorded: FakeProject) -> None:
    """Where the stored choice is slower, too, by the very code of the entry, the machine moved as well."""
    case = now(recorded, time_us=120.0, **tuned(time_us=105.0))
    assert (case["verdict"], case["fails"]) == ("MOVED", False)
    assert "where an autotuner chose differently" in case["summary"]
    assert any("it is slower, too" in why for why in case["reasons"])
