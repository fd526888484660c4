"""What a user types, on a CPU: every liar fails with a text that names its trick, and every honest twin passes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from pytest_attnperf.correctness.judge import Judge
from pytest_attnperf.correctness.references import References
from pytest_attnperf.records import Tolerance
from pytest_attnperf.testing.liars import LIARS, Liar

ON_CPU = [liar for liar in LIARS if not liar.needs_gpu]
CHECKED = [liar for liar in ON_CPU if not liar.needs_timing and not liar.needs_trial]
TRIED = [liar for liar in ON_CPU if liar.needs_trial]
TIMED = [liar for liar in ON_CPU if liar.needs_timing]
DEVICE = "--attnperf-device=cpu"
FLOOR_US = 8000
"""Honest calls of 1.3 ms have taken 6 ms for a whole run on a shared machine; only the twins are allowed that."""


def each(liars: list[Liar]) -> Any:
    """One test for each liar, named by its trick."""
    return pytest.mark.parametrize("liar", liars, ids=[liar.trick for liar in liars])


@pytest.fixture(scope="module")
def checked(make_project: Callable[..., Any]) -> Any:
    """What one `pytest suites/` says of all liars that run on a CPU, and of their twins."""
    return make_project(ON_CPU).run(DEVICE)


@pytest.fixture(scope="module")
def timed(make_project: Callable[..., Any]) -> Any:
    """What runs of the liars that need timing say: 'stored' and 'again' of their twins, then 'lying' of themselves.

    Blocks of many calls, so that one that is slow now and then is in every one of them, on a busy machine, too.
    """
    project = make_project(TIMED)
    flags = (DEVICE, "--attnperf-effort=block_us=30000,blocks=7", "--attnperf-second-look=1", "-k", "liar.")
    gate = (*flags, "--attnperf", "--attnperf-threshold=50")
    patient = f"--attnperf-override=floor_us={FLOOR_US}"
    stored = project.run(*flags, "--update-baselines", honest=True)
    return {"stored": stored, "again": project.run(*gate, patient, honest=True), "lying": project.run(*gate)}


@pytest.fixture(scope="module")
def tried(make_project: Callable[..., Any]) -> Any:
    """What one `pytest --attnperf-trials=all suites/` says of the liars that need a trial, and of their twins."""
    return make_project(TRIED).run(DEVICE, "--attnperf-trials=all")


@each(CHECKED)
def test_a_liar_is_incorrect_and_its_trick_is_named(liar: Liar, checked: dict[str, Any]) -> None:
    """`pytest suites/` fails the liar, and the text says what the trick did."""
    said = checked[liar.lying.name]
    assert said.failed, f"passed as {said.verdict}: {liar.says}"
    assert said.verdict == liar.verdict.value
    assert re.search(liar.clue, said.text), said.text


@each(ON_CPU)
def test_its_twin_passes(liar: Liar, checked: dict[str, Any]) -> None:
    """The same backend without the trick is proven right on the same workload, in the same run."""
    said = checked[liar.honest.name]
    assert not said.failed, said.text
    assert said.verdict == "RIGHT"


@each(TIMED)
def test_a_liar_that_needs_timing_is_right_when_it_is_only_checked(liar: Liar, checked: dict[str, Any]) -> None:
    """What only a timed run can see is no false alarm of a check."""
    assert checked[liar.lying.name].verdict == "RIGHT"


@each(TRIED)
def test_a_liar_that_needs_a_trial_is_right_without_it(liar: Liar, checked: dict[str, Any]) -> None:
    """The usual proof does not see the trick, which is why there is a trial."""
    assert checked[liar.lying.name].verdict == "RIGHT"


@each(TRIED)
def test_a_liar_is_caught_by_its_trial(liar: Liar, tried: dict[str, Any]) -> None:
    """With all trials `pytest suites/` fails the liar, and the text says what the trick did; its twin passes."""
    said = tried[liar.lying.name]
    assert said.failed, f"passed as {said.verdict}: {liar.says}"
    assert said.verdict == liar.verdict.value
    assert re.search(liar.clue, said.text), said.text
    honest = tried[liar.honest.name]
    assert honest.verdict == "RIGHT", honest.text


@each(TIMED)
def test_a_liar_is_caught_when_it_is_timed(liar: Liar, timed: dict[str, Any]) -> None:
    """`pytest --attnperf` fails the liar with its verdict, and the text says what the trick did."""
    said = timed["lying"][liar.lying.name]
    assert said.failed, f"passed as {said.verdict}: {liar.says}"
    assert said.verdict == liar.verdict.value
    assert re.search(liar.clue, said.text), said.text


@each(TIMED)
def test_its_twin_passes_when_it_is_timed(liar: Liar, timed: dict[str, Any]) -> None:
    """Under the liar's name the twin is stored, and does not fail against what was stored of it."""
    assert timed["stored"][liar.lying.name].verdict == "RECORDED"
    said = timed["again"][liar.lying.name]
    assert not said.failed, said.text
    assert said.verdict in ("SAME", "FASTER", "UNDECIDED")


def test_one_liar_cannot_spoil_the_judge_for_others(by_trick: dict[str, Liar]) -> None:
    """A liar that returns the reference leaves it as it was: the next wrong backend of the workload still fails."""
    references = References()

    def problems(backend: Any) -> list[tuple[str, ...]]:
        workload = thief.workload
        prepared = backend.prepare(workload, workload.make_inputs(1, "cpu", planted=False))
        judge = Judge(prepared, workload, references=references, tolerance=Tolerance(), device="cpu")
        reports = [judge.check_call("check", prepared.run, seed=seed, planted=True) for seed in (2, 3, 2)]
        return [report.problems for report in reports]

    def expected(seed: int) -> Any:
        """As a list: the thief searches tensors, and must not find this one."""
        inputs = thief.workload.make_inputs(seed, "cpu", planted=True)
        return references.compute_expected(thief.workload, inputs, seed=seed, planted=True).reference["out"].tolist()

    thief = by_trick["returns_judges_memory"]
    before = [expected(seed) for seed in (2, 3)]
    assert all(problems(thief.lying))
    for seed, reference in zip((2, 3), before, strict=True):
        assert expected(seed) == reference
    assert all(problems(by_trick["writes_nothing"].lying))
    assert not any(problems(thief.honest))
