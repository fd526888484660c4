from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import CaseKey, CheckReport, DeviceInfo, Verdict
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.reports.run.joined import Shown
from pytest_attnperf.testing.sample_runs import sample_run
from pytest_attnperf.tools.export.exported_cases import (
    NAME_LIMIT,
    WhyLeftOut,
    describe_left_out,
    find_reason,
    list_facts,
    require_cases,
)
from tests.tools.export.export_samples import HOSTILE, export, hostile_run, mixed_run

CASE = sample_run(1, verdicts=[Verdict.SAME]).cases[0]
WRONG = (CheckReport(problems=("wrong",)),)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"verdict": Verdict.SLOWER, "fails": True}, None),
        ({"verdict": Verdict.RECORDED}, None),
        ({"verdict": Verdict.NO_BASELINE}, None),
        ({"verdict": Verdict.INCORRECT}, WhyLeftOut.NOT_RIGHT),
        ({"verdict": Verdict.ERROR}, WhyLeftOut.NOT_RIGHT),
        ({"checks": WRONG}, WhyLeftOut.NOT_RIGHT),
        ({"checks": ()}, WhyLeftOut.NOT_RIGHT),
        ({"verdict": Verdict.SUSPICIOUS}, WhyLeftOut.DOUBTFUL),
        ({"verdict": Verdict.ENVIRONMENT}, WhyLeftOut.DOUBTFUL),
        ({"verdict": Verdict.UNSUPPORTED}, WhyLeftOut.NOT_TIMED),
        ({"verdict": Verdict.RIGHT, "unchanged": True}, WhyLeftOut.NOT_TIMED),
        ({"median_us": None}, WhyLeftOut.NOT_TIMED),
        ({"reasons": (Note(NoteKind.FOREIGN, "k.py"),)}, WhyLeftOut.FOREIGN),
        ({"median_us": 0.0}, WhyLeftOut.NO_TIME),
        ({"median_us": -3.0}, WhyLeftOut.NO_TIME),
        ({"median_us": 1e300}, WhyLeftOut.NO_TIME),
        ({"first": (replace(CASE.first[0], median_us=1e300),), "second": (), "pairs": ()}, WhyLeftOut.NO_TIME),
    ],
)
def test_which_times_are_exported(changes: dict[str, Any], expected: WhyLeftOut | None) -> None:
    """Only one that was measured, of this tree's code, for a proven result; a slower one, too."""
    assert find_reason(Shown(sample_run(1), replace(CASE, **changes), "d")) is expected


@pytest.mark.parametrize(("kind", "expected"), [("rocm", WhyLeftOut.INTERPRETED), ("cpu", None)])
def test_an_interpreter_of_machine_code_has_no_time(kind: str, expected: WhyLeftOut | None) -> None:
    """What it takes says nothing about a GPU. On a CPU Triton's kernels are interpreted, and never timed; what is timed
    there is torch's."""
    run = replace(sample_run(1), device=DeviceInfo(kind, "gfx942", "mi300x", interpreted=True))
    assert find_reason(Shown(run, CASE, "d")) is expected


def test_what_is_left_out_is_counted() -> None:
    """By reason, most frequent first; without any case with a time the error has the counts."""
    exported = export(mixed_run())
    assert [one.case.verdict for one in exported.cases] == [Verdict.SAME, Verdict.SLOWER]
    said = describe_left_out(exported.left_out)
    assert said == "2 not timed, 1 not proven right, 1 with a time that is not believed (SUSPICIOUS, ENVIRONMENT)"
    none = export(replace(mixed_run(), cases=mixed_run().cases[2:]))
    with pytest.raises(UsageError, match=r"no case of these results has a time to export, of 4: 2 not timed, 1 not"):
        require_cases(none)


def test_the_range_is_that_of_the_processes() -> None:
    """Of the pairs if there are some, else of the second look, else of the first; one process has none. Rates turn
    it round."""
    first = (CASE.first[0],)
    three = tuple(replace(CASE.first[0], median_us=us) for us in (99.0, 103.0, 101.0))
    pairs = tuple(PairSummary(1.0, 100.0, us, 40, "graph") for us in (50.0, 52.0))
    ranges = []
    for changes in ({"first": first, "second": ()}, {"second": three}, {"second": three, "pairs": pairs}):
        case = replace(CASE, median_us=51.0 if "pairs" in changes else 101.0, **{"pairs": (), **changes})  # type: ignore[arg-type]
        (one,) = export(replace(sample_run(1), cases=(case,))).cases
        ranges.append((one.low_us, one.high_us))
        assert all((rate.low is None) == (one.low_us is None) for rate in one.rates)
        assert all(rate.low <= rate.value <= rate.high for rate in one.rates if rate.low and rate.high)
        assert {rate.unit for rate in one.rates} == {"TFLOP/s", "GB/s"}
    assert ranges == [(None, None), (99.0, 103.0), (50.0, 52.0)]


def test_names_are_stable_and_tell_devices_apart() -> None:
    """A name is case and device, whatever else is exported with it."""
    run = sample_run(1, verdicts=[Verdict.SAME])
    other = sample_run(1, verdicts=[Verdict.SAME], product="h200")
    (alone,) = export(run).cases
    assert alone.name == f"{run.cases[0].key} on sm_90/sample"
    assert [one.name for one in export(run, other).cases] == [alone.name, f"{run.cases[0].key} on sm_90/h200"]


def test_a_strangers_name_is_safe_and_its_own() -> None:
    """One short line without markup and control characters; two names never become one."""
    cases = export(hostile_run()).cases
    names = [one.name for one in cases]
    assert len({*names}) == len(HOSTILE)
    assert all(name.isprintable() and not {*"`|<>&\\*"} & {*name} for name in names)
    assert max(len(name.encode()) for name in names) <= 1024
    assert max(map(len, names)) <= NAME_LIMIT + 20
    assert all(text.isprintable() and len(text) <= 300 for one in cases for text in list_facts(one).values())


def test_case_and_device_that_read_alike_have_two_names() -> None:
    """'a on b' on c, and a on 'b on c'."""
    run = sample_run(2, verdicts=[Verdict.SAME])
    made = []
    for workload, arch in (("w on x/y", "z"), ("w", "x/y on z")):
        case = replace(run.cases[0], key=CaseKey("s", "b", workload))
        made.append(replace(run, cases=(case,), device=DeviceInfo("cuda", arch, "p")))
    first, second = export(*made).cases
    assert first.name != second.name
