"""One case is found in a results file by what it is called, and read as the whole file would have been."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import CaseKey, CheckReport, ErrorFigures, Verdict
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.reports.files.json_results import ResultsFileError, decode, encode
from pytest_attnperf.reports.files.one_case import ResultsIndex, find_nearest_names, find_single_result, read_index
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.testing.sample_runs import sample_run

KERNEL = CodeResult(CaseKey("code_objects", "triton.flash", "bm128-bn64", "gfx942"), "kernels.py::k", Verdict.SAME, "")


@pytest.fixture(scope="module")
def run() -> RunResult:
    """Sixty cases and a compiled kernel; one case was proven only, one is wrong by a NaN."""
    made = sample_run(60)
    figures = ErrorFigures("c", "out", float("nan"), 1.0, float("nan"), 1.0, nan_count=3)
    wrong = replace(made.cases[7], checks=(CheckReport((figures,), ("NaN",)),))
    proven = replace(made.cases[8], notes=(Note(NoteKind.PROVEN_ONLY, "not timed: its test sets timed=False"),))
    return replace(made, cases=(*made.cases[:7], wrong, proven, *made.cases[9:]), code=(KERNEL,))


@pytest.fixture(scope="module")
def index(run: RunResult) -> ResultsIndex:
    """Their names."""
    return read_index(encode(run), "r.json")


def test_every_case_is_read_as_the_whole_file_is(run: RunResult, index: ResultsIndex) -> None:
    """By its node id and by its key, with the run's own fields, NaN among its errors included."""
    whole = decode(encode(run), "r.json")
    for case in whole.cases[:12]:
        for name in (case.nodeid, str(case.key), case.key.entry):
            alone = index.run_with(index.find(name))
            assert repr(alone) == repr(replace(whole, cases=(case,), code=()))
            assert repr(find_single_result(alone)) == repr(case)


def test_a_compiled_kernel_is_found_by_a_part_of_its_key(run: RunResult, index: ResultsIndex) -> None:
    """And held alone."""
    alone = index.run_with(index.find("bm128"))
    assert (alone.cases, alone.code) == ((), (KERNEL,))
    assert find_single_result(alone) == KERNEL


def test_cases_that_are_only_proven_share_no_false_alarms(index: ResultsIndex) -> None:
    """Sixty cases, one of them not timed, and a kernel."""
    assert (len(index.entries), index.timed_count) == (61, 59)


def test_a_part_of_several_lists_them(index: ResultsIndex) -> None:
    """With their verdicts, at most twenty, and how many more there are."""
    with pytest.raises(UsageError) as raised:
        index.find("causal")
    first, *listed = str(raised.value).splitlines()
    assert first == "'causal' is part of 60 cases of r.json; name one:"
    assert len(listed) == 21
    assert listed[0].split()[1].startswith("prefill/native.eager/")
    assert listed[-1] == "  ... and 40 more"


def test_a_key_that_is_part_of_another_is_meant_itself() -> None:
    """The whole key of a case is not several because a label makes it longer."""
    case = sample_run(1).cases[0]
    labelled = replace(case, key=replace(case.key, label="pinned"), nodeid="other")
    index = read_index(encode(replace(sample_run(1), cases=(case, labelled))), "r.json")
    assert index.find(str(case.key)).place == 0


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("triton.flahs/prefill-b1-s128-h4-d64-f16-causal", "  prefill/triton.flash/prefill-b1-s128-h4-d64-f16-causal"),
        ("zork", "r.json has no case 'zork'; it holds 61: prefill/native.eager (12)"),
        ("\x1b[31mred", "r.json has no case ' [31mred'"),
    ],
)
def test_what_no_case_is_called_names_the_nearest(index: ResultsIndex, typed: str, said: str) -> None:
    """Spelt much alike, or else what there is; and never an escape sequence."""
    with pytest.raises(UsageError) as raised:
        index.find(typed)
    assert said in str(raised.value)
    assert "\x1b" not in str(raised.value)


def test_the_nearest_of_many_names_comes_first() -> None:
    """Among more names than are compared letter by letter."""
    names = [f"prefill/backend{number}/prefill-s{number}" for number in range(1000)]
    assert find_nearest_names("prefil/backend777/prefill-s777", names)[0] == names[777]


def test_the_worst_is_what_failed_and_is_slowest(run: RunResult, index: ResultsIndex) -> None:
    """A failing INCORRECT before a failing SLOWER; without cases there is nothing to explain."""
    worst = index.choose_worst()
    assert (worst.verdict, worst.fails) == (Verdict.INCORRECT, True)
    slow: list[CaseResult] = [case for case in run.cases if case.verdict is Verdict.SLOWER]
    only = read_index(encode(replace(run, cases=tuple(slow), code=())), "r.json")
    assert only.choose_worst().ratio == max(case.ratio or 0.0 for case in slow)
    with pytest.raises(UsageError, match="holds no case"):
        read_index(encode(replace(run, cases=(), code=())), "r.json").choose_worst()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[]", "r.json"),
        (b"{", "r.json"),
        (b'{"schema": 99}', "this version reads up to 5"),
        (b'{"schema": 1, "cases": 3}', "r.json is not a results file of this version"),
        (b"\xff\xfe", "r.json"),
        (
            encode(sample_run(2)).replace(b'"verdict": "', b'"verdict": "X'),
            "r.json is not a results file of this version",
        ),
        (encode(sample_run(2)).replace(b'"key"', b'"quay"'), "r.json is not a results file of this version"),
        (b"[" * 100000, "r.json"),
    ],
)
def test_a_file_that_is_none_is_refused(content: bytes, said: str) -> None:
    """By name, with what is off, and never by a traceback."""
    with pytest.raises(ResultsFileError) as raised:
        read_index(content, "r.json")
    assert said in str(raised.value)
