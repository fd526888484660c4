"""What proving costs beside another tree: the order of processes, the cases, the trials of every run."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernels
from benchmarks import proof_cost
from pytest_attnperf.backends import Registry
from pytest_attnperf.workloads.families import parse_workload


def test_trees_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A B B A, and the base is always the first of a pair."""
    order: list[Path] = []

    def measure(tree: Path, cases: object, kind: str) -> dict[str, float]:
        order.append(tree)
        return {"a": 1.0 if tree == Path("base") else 2.0}

    monkeypatch.setattr(proof_cost, "measure", measure)
    pairs = list(proof_cost.take_turns(Path("base"), ["a"], "cpu", 2))
    assert order == [Path("base"), proof_cost.ROOT, proof_cost.ROOT, Path("base")]
    assert pairs == [({"a": 1.0}, {"a": 2.0})] * 2


@pytest.mark.parametrize("case", [case for cases in proof_cost.CASES.values() for case in cases])
def test_its_cases_exist(case: str) -> None:
    """Every backend is registered, and takes the family of its workload."""
    registry = Registry()
    kernels.register(registry)
    backend, _, workload = case.partition("/")
    assert parse_workload(workload).family in registry.get(backend).families


def test_a_case_is_proven_with_the_trials_of_every_run(one_thread: None) -> None:
    """Seconds are those of all proofs but the first; a tree without trials has no such argument."""
    assert proof_cost.list_usual_trials() == {"trials": ("guards",)}
    case = "native.softmax/softmax-r64-c512-f16"
    assert proof_cost.prove([case], "cpu")[case] > 0
