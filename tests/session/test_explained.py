"""What the judge says of a case is explained by the cause it had, and never said to contradict its own samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.cli.commands.explain import recount_case
from pytest_attnperf.errors import WorkerError
from pytest_attnperf.records import Fingerprint, Verdict
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.reports.explain.by_proof import find_comparison_cause
from pytest_attnperf.reports.explain.explain_page import explain_case
from pytest_attnperf.reports.explain.facts import Told
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult
from pytest_attnperf.session import case_records
from pytest_attnperf.session.settings import RunMode

if TYPE_CHECKING:
    from tests.session.conftest import Bench

Scene = Callable[["Bench"], CaseResult]
CK, ASM = {"config": {"path": "ck"}}, {"config": {"path": "asm"}}


def told(case: CaseResult) -> Told:
    """The case alone in a run, beside no baselines."""
    run = RunResult(RESULTS_SCHEMA, "0", "gate", "2026-01-01", "pytest", "c1", None, None, (case,), selected=1)
    return recount_case(case, run, Path("results.json"), 1, None)


def scripted(**script: Any) -> Scene:
    """The case judged after it was stored at 100 us."""

    def judge(stored: Bench) -> CaseResult:
        return stored.judge(**script)

    return judge


def by_pairs(**script: Any) -> Scene:
    """The same against a base side, whose pairs settle every case."""

    def judge(stored: Bench) -> CaseResult:
        stored.against_base(everything=True)
        return stored.judge(**script)

    return judge


def at_places(places: dict[int, dict[str, Any]], **script: Any) -> Scene:
    """The same, with single processes scripted."""

    def judge(stored: Bench) -> CaseResult:
        stored.pool.by_place = places
        return stored.judge(**script)

    return judge


def toolchain(stored: Bench) -> CaseResult:
    """Slower under another driver."""
    stored.pool.machine = Fingerprint(stored.pool.machine.must_match, {"driver": "2"})
    return stored.judge(time_us=110.0)


def noisy(stored: Bench) -> CaseResult:
    """Stored processes 3 % apart, and a time 4 % above their centre."""
    stored.pool.by_place = {100 + place: {"time_us": 91.0 + 3 * place} for place in range(7)}
    stored.record()
    return stored.judge(time_us=104.0)


def recorded(stored: Bench) -> CaseResult:
    """Recorded over what was there."""
    return stored.judge(RunMode.UPDATE, time_us=101.0)


SCENES: dict[str, tuple[Scene, Verdict, str]] = {
    "same": (scripted(time_us=100.3), Verdict.SAME, "that this test allows, so it passes"),
    "faster": (scripted(time_us=80.0), Verdict.FASTER, "keep the faster time"),
    "a jump": (scripted(time_us=20.0), Verdict.FASTER, "proven once more on new inputs"),
    "slower": (scripted(time_us=110.0), Verdict.SLOWER, "Two looks agree"),
    "slower by pairs": (by_pairs(time_us=110.0), Verdict.SLOWER, "in 3 pairs of fresh processes"),
    "same by pairs": (by_pairs(), Verdict.SAME, "as long as on the base side"),
    "noise": (noisy, Verdict.UNDECIDED, "It is neither passed nor failed: the true change lies between"),
    "toolchain": (toolchain, Verdict.ENVIRONMENT, "the toolchain is not the one"),
    "canary": (scripted(time_us=105.0, canary_us=210.0), Verdict.ENVIRONMENT, "the machine moved"),
    "wrong": (scripted(fault="wrong"), Verdict.INCORRECT, "The result is wrong"),
    "NaN": (scripted(fault="nan"), Verdict.INCORRECT, "one that is never written stays NaN"),
    "broken": (scripted(fault="untimeable"), Verdict.ERROR, "The case broke before it could be judged"),
    "gone": (scripted(supported=["no such kernel"]), Verdict.UNSUPPORTED, "It could before"),
    "remembers": (scripted(time_us=20.0, remembers=5.0), Verdict.SUSPICIOUS, "a memory of the result"),
    "another timer": (scripted(timer="graph"), Verdict.INCOMPARABLE, "by a method, whose times cannot"),
    "foreign": (at_places({0: {"foreign": ("module k of /x",)}}), Verdict.INCOMPARABLE, "of another tree were loaded"),
    "recorded": (recorded, Verdict.RECORDED, "measured in 7 fresh processes"),
    "died": (
        at_places({0: {"error": WorkerError("worker 1 died: signal 11", "log line", kind=NoteKind.DIED)}}),
        Verdict.ERROR,
        "an illegal memory access",
    ),
}


@pytest.mark.parametrize("name", SCENES)
def test_a_judged_case_is_explained_by_its_cause(stored: Bench, name: str) -> None:
    """In three sentences or more, with something to do next; its file does not contradict its samples."""
    scene, verdict, said = SCENES[name]
    found = told(scene(stored))
    words = explain_case(found)
    assert found.case.verdict is verdict
    assert found.facts.contradicted == ()
    assert said in " ".join((*words.sentences, *(step.why for step in words.steps)))
    assert 3 <= len(words.sentences) <= 9
    assert any(step.command for step in words.steps)


def test_other_words_do_not_lose_a_cause(stored: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a text is reworded, the explanation still says the cause: it goes by the kind of the reason."""
    monkeypatch.setattr(case_records, "FOREIGN", "somebody else's kernels")
    stored.pool.by_place = {0: {"foreign": ("module k of /x",)}}
    found = told(stored.judge())
    assert found.case.summary == "somebody else's kernels"
    assert find_comparison_cause(found.case).name == "foreign code"


def test_a_new_case_is_told_to_be_recorded(bench: Bench) -> None:
    """Nothing stored: the command that stores it comes first."""
    words = explain_case(told(bench.judge()))
    assert words.steps[0].command.startswith("pytest --update-baselines ")


@pytest.mark.parametrize(
    ("now", "base", "cause"),
    [
        (CK, None, "another path of a library"),
        ({}, {"fault": "wrong"}, "the base side"),
        ({}, {"fault": "oom"}, "the base side raised"),
    ],
)
def test_causes_of_incomparable_are_told_apart(
    bench: Bench, now: dict[str, Any], base: dict[str, Any] | None, cause: str
) -> None:
    """By what the judge itself wrote, so that no other wording of it is missed here."""
    bench.record(**ASM)
    if base is not None:
        bench.against_base(everything=True, **base)
    case = bench.judge(**now)
    assert (case.verdict, find_comparison_cause(case).name) == (Verdict.INCOMPARABLE, cause)


def test_mixed_paths_and_other_workloads_are_told_apart(bench: Bench) -> None:
    """A recording of two paths; a definition, a product and a count of processes that are not the stored ones."""
    bench.pool.by_place = {103: {"config": {"path": "triton"}}}
    assert find_comparison_cause(bench.judge(RunMode.UPDATE, **CK)).name == "mixed paths"
    for kind, cause in (
        (NoteKind.WORKLOAD, "workload definition"),
        (NoteKind.PROCESSES, "too few processes"),
        (NoteKind.OTHER_PRODUCT, "another machine"),
        (NoteKind.MACHINE, "another machine or method"),
    ):
        case = CaseResult(bench.case.key, "n", Verdict.INCOMPARABLE, "x", reasons=(Note(kind, "x"),))
        assert find_comparison_cause(case).name == cause
