from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import CaseKey, Fingerprint, Verdict
from pytest_attnperf.reports.run.ladder_cases import Selection, build_ladders, is_timed, refuse_unknown_backends
from pytest_attnperf.results import CaseResult, RunResult

CaseFactory: TypeAlias = Callable[..., CaseResult]
RunFactory: TypeAlias = Callable[..., RunResult]

CHOSEN = Selection("hip.naive", "native.sdpa_flash")
OTHER = "prefill-b1-s64-h1-d16-f16"


def selected(**changed: Any) -> Selection:
    """CHOSEN with other fields."""
    return Selection(**{**vars(CHOSEN), **changed})


def test_every_workload_that_has_the_base(case: CaseFactory, run: RunFactory) -> None:
    """Cases stand in the order of the results, with the times that the others are held to."""
    cases = (
        case("native.sdpa_flash", median_us=10.0),
        case("hip.naive", median_us=100.0),
        case("hip.flash", median_us=20.0),
        case("hip.flash", workload=OTHER),
    )
    (ladder,) = build_ladders(run(*cases), CHOSEN, "r.json")
    assert (ladder.title, ladder.cases) == (cases[0].key.workload, cases[:3])
    assert (ladder.base_us, ladder.against_name, ladder.against_us) == (100.0, "native.sdpa_flash", 10.0)


def test_chosen_backends_are_shown_and_the_base_is_still_known(case: CaseFactory, run: RunFactory) -> None:
    """`backends` hides others, in canonical order, without changing what speeds are relative to."""
    cases = (case("hip.naive", median_us=100.0), case("hip.flash"), case("triton.flash"))
    (ladder,) = build_ladders(run(*cases), selected(backends=("triton.flash", "hip.flash")), "r.json")
    assert [shown.key.backend for shown in ladder.cases] == ["hip.flash", "triton.flash"]
    assert (ladder.base_us, ladder.against_us) == (100.0, None)


def test_labels_and_suites_are_apart(case: CaseFactory, run: RunFactory) -> None:
    """One workload under a label, or in another suite, is a ladder of its own."""
    elsewhere = case("hip.naive", key=CaseKey("other", "hip.naive", OTHER))
    cases = (case("hip.naive", workload=OTHER), case("hip.naive", workload=OTHER, label="hot"), elsewhere)
    found = build_ladders(run(*cases), CHOSEN, "r.json")
    assert [(ladder.title, len(ladder.cases)) for ladder in found] == [(OTHER, 1), (f"{OTHER}/hot", 1), (OTHER, 1)]


@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_verdict_decides_whether_a_time_counts(case: CaseFactory, verdict: Verdict) -> None:
    """Times of wrong, broken, implausible and unsupported cases are none; those of every other verdict are."""
    wordy = {Verdict.INCORRECT, Verdict.SUSPICIOUS, Verdict.ERROR, Verdict.UNSUPPORTED, Verdict.WORSE}
    assert is_timed(case(verdict=verdict)) == (verdict not in wordy)
    assert not is_timed(case(verdict=verdict, median_us=None))


def test_a_base_without_a_time_is_no_error(case: CaseFactory, run: RunFactory) -> None:
    """The others have theirs."""
    cases = (case("hip.naive", verdict=Verdict.ERROR), case("hip.flash"))
    (ladder,) = build_ladders(run(*cases), CHOSEN, "r.json")
    assert ladder.base_us is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"base": "hip.first"}, "r.json has no case of the base backend 'hip.first'; choose one by --over: hip.flash,"),
        ({"backends": ("hip.flsh",)}, "unknown backend 'hip.flsh'; known: hip.flash, hip.naive"),
        ({"workloads": ("decode",)}, f"unknown workload 'decode'; known: {OTHER}, prefill-b4-s512-h8-d256-f16-causal"),
        (
            {"workloads": (OTHER,)},
            "r.json: no workload among those chosen has the base backend 'hip.naive' and a backend to show; "
            "workloads with 'hip.naive': prefill-b4-s512-h8-d256-f16-causal",
        ),
    ],
)
def test_what_is_not_there_is_named(case: CaseFactory, run: RunFactory, changed: dict[str, Any], message: str) -> None:
    """An unknown backend or workload, and a workload without the base, are errors that list what exists."""
    cases = (case("hip.naive"), case("hip.flash"), case("hip.flash", workload=OTHER))
    with pytest.raises(UsageError) as caught:
        build_ladders(run(*cases), selected(**changed), "r.json")
    assert message in str(caught.value)


def test_results_without_cases_or_times(case: CaseFactory, run: RunFactory) -> None:
    """A run that compiled or only proved gives no ladder, and says which run would."""
    with pytest.raises(UsageError, match=r"r\.json holds no case; a ladder needs a run of the suites"):
        build_ladders(run(), CHOSEN, "r.json")
    proved = run(case("hip.naive", verdict=Verdict.RIGHT, median_us=None), mode="check")
    with pytest.raises(UsageError, match=r"r\.json holds no time of these backends \(mode 'check'\): a ladder needs"):
        build_ladders(proved, CHOSEN, "r.json")


def test_two_machines_are_no_ladder(case: CaseFactory, run: RunFactory) -> None:
    """Times of two products do not belong into one table; a case without a fingerprint was not measured."""
    there = Fingerprint({"arch": "gfx942", "product": "mi300x"}, {})
    here = Fingerprint({"arch": "sm_90", "product": "h200"}, {})
    cases = (case("hip.naive", fingerprint=here), case("hip.flash", fingerprint=there), case("ck", fingerprint=None))
    with pytest.raises(UsageError, match=r"r\.json holds cases of sm_90/h200 and gfx942/mi300x; a ladder compares"):
        build_ladders(run(*cases), CHOSEN, "r.json")
    assert len(build_ladders(run(cases[0], cases[2]), CHOSEN, "r.json")) == 1


def test_names_are_checked_by_themselves(case: CaseFactory, run: RunFactory) -> None:
    """What speeds are relative to may be absent by default, and must exist where it is named."""
    results = run(case("hip.naive"))
    refuse_unknown_backends(results, ["hip.naive"])
    with pytest.raises(UsageError, match=r"unknown backend 'ck'; known: hip\.naive"):
        refuse_unknown_backends(results, ["ck"])
