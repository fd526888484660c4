"""Shards put together: what adds up, what is said of repetitions, what stands apart, and what fails the whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_attnperf.records import Fingerprint, Verdict
from pytest_attnperf.records.gpus import GpuRecord
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.reports.files.json_results import ResultsFileError
from pytest_attnperf.reports.files.merged import (
    RUN_IDS,
    MergedRuns,
    decode_merged,
    encode_merged,
    list_failure_reasons,
    merge_runs,
)
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.testing.sample_runs import sample_run

WHOLE = sample_run(10, verdicts=[Verdict.SAME])


def shard(number: int, begin: int, end: int, **fields: object) -> tuple[str, RunResult]:
    """A part of one suite, with its file's name."""
    part = WHOLE.cases[begin:end]
    told: dict[str, object] = {
        "cases": part, "gated": len(part), "selected": len(part), "run_id": f"id{number}", "seconds": 10.0 * number,
        "started": f"2026-01-0{number}T00:00:00+00:00", "gpus": (GpuRecord(f"GPU-{number % 2}", cases=len(part)),),
    }  # fmt: skip
    return f"{number}.json", replace(WHOLE, **{**told, **fields})  # type: ignore[arg-type]


def one(merged: MergedRuns) -> RunResult:
    """The only run."""
    [(_, run)] = merged.runs
    return run


def test_shards_of_one_device_are_one_run() -> None:
    """Cases joined, counts added, the longest time, cards each once, where it all came from."""
    merged = merge_runs([shard(2, 4, 7), shard(1, 0, 4), shard(3, 7, 10)])
    run = one(merged)
    assert run.cases == WHOLE.cases
    assert (run.gated, run.selected, run.complete, run.seconds) == (10, 10, True, 30.0)
    assert run.notes[0] == ("merged from 3 shards: 1.json, 2.json, 3.json; the longest took 30 s, all together 60 s")
    assert run.provenance == {"branch": "main", RUN_IDS: "id1, id2, id3"}
    assert [(gpu.device_id, gpu.cases) for gpu in run.gpus] == [("GPU-1", 7), ("GPU-0", 3)]
    assert (merged.shards, merged.mixed, merged.notes) == ((3,), (), ())
    assert run.run_id == one(merge_runs([shard(1, 0, 4), shard(3, 7, 10), shard(2, 4, 7)])).run_id


def test_a_case_that_two_shards_have() -> None:
    """Is shown by its worse verdict and counted once, and both are said."""
    worse = replace(WHOLE.cases[3], verdict=Verdict.SLOWER, fails=True)
    name, second = shard(2, 3, 10)
    run = one(merge_runs([shard(1, 0, 4), (name, replace(second, cases=(worse, *second.cases[1:])))]))
    assert (len(run.cases), run.gated, run.selected) == (10, 10, 10)
    assert run.cases[3].verdict is Verdict.SLOWER
    assert "occurs twice, SAME in 1.json and SLOWER in 2.json" in run.notes[1]
    assert list_failure_reasons(run, strict=False) == ["failed: 1 slower"]


def test_the_same_run_twice_counts_once() -> None:
    """By its id and content; runs without one are all there, and so is a failure behind the id of another run."""
    merged = merge_runs([shard(1, 0, 4), shard(1, 0, 4)])
    assert (merged.shards, len(one(merged).cases)) == ((1,), 4)
    assert merged.notes == ("1.json is the same run as 1.json: it counts once",)
    assert merge_runs([shard(1, 0, 4, run_id=""), shard(2, 4, 8, run_id="")]).shards == (2,)
    failed = merge_runs([shard(1, 0, 4), shard(1, 0, 4, cases=(replace(WHOLE.cases[0], fails=True),))])
    assert failed.shards == (2,)
    assert list_failure_reasons(one(failed), strict=False)[0].startswith("failed: 1 ")


def test_other_devices_and_fingerprints_stand_apart() -> None:
    """Another product; and the same one under another power cap, which is said."""
    other = ("other.json", sample_run(3, product="other", commit=WHOLE.commit))
    capped = Fingerprint({**WHOLE.fingerprint.must_match, "power_cap": "500"}, {}) if WHOLE.fingerprint else None
    assert len(merge_runs([shard(1, 0, 4), other]).runs) == 2
    merged = merge_runs([shard(1, 0, 4), shard(2, 4, 8, fingerprint=capped)])
    assert len(merged.runs) == 2
    assert merged.notes == ("2 runs of sm_90/sample (gate) stay separate: their fingerprints differ",)


def test_shards_of_different_code_are_named() -> None:
    """Commits and versions of the harness; the run is then of no commit."""
    merged = merge_runs([shard(1, 0, 4), shard(2, 4, 8, commit="0123456789abcdef", version="9")])
    assert merged.mixed == (
        "shards of different commits: 4f2c1ab90d11 in 1.json, 0123456789ab in 2.json",
        f"shards of different versions of pytest-attnperf: {WHOLE.version} in 1.json, 9 in 2.json",
    )
    assert one(merged).commit == "unknown"


def test_left_to_nightly_by_every_shard_only() -> None:
    """A case that one shard left out and another measured was measured."""
    left = tuple(case.key for case in WHOLE.cases[:5])
    run = one(merge_runs([shard(1, 0, 4, left_to_nightly=left), shard(2, 5, 8, left_to_nightly=left)]))
    assert run.left_to_nightly == left[4:]


UNDECIDED = replace(WHOLE.cases[0], verdict=Verdict.UNDECIDED)
SLOWER, WRONG = (replace(UNDECIDED, verdict=verdict) for verdict in (Verdict.SLOWER, Verdict.INCORRECT))
HELD = {"quarantined": "an issue until 2026-12-31"}
FORGIVEN = {"policy": {"fail_on": ["SLOWER"]}}


def only(case: CaseResult) -> dict[str, object]:
    """Fields of a run of this case."""
    return {"cases": (case,), "selected": 1}


ONE_OF_TWO = Note(NoteKind.MISSING_SHARDS, "shards missing: 1")


@pytest.mark.parametrize(
    ("fields", "plain", "strict"),
    [
        ({}, [], []),
        ({"complete": False}, ["incomplete: "], ["incomplete: "]),
        (only(replace(UNDECIDED, fails=True)), ["failed: 1 undecided"], ["failed: ", "strict: 1 cases are"]),
        (only(UNDECIDED), [], ["strict: 1 cases are UNDECIDED"]),
        (only(SLOWER), ["failed: 1 slower"], ["failed: 1 slower"]),
        (only(replace(SLOWER, **HELD)), [], []),
        (only(replace(WRONG, **HELD)), ["failed: 1 "], ["failed: 1 "]),
        (only(replace(WRONG, **FORGIVEN)), [], []),
        ({"selected": 5}, ["incomplete: 4 of 5 results"], ["incomplete: 4 of 5 results"]),
        (
            {"findings": (ONE_OF_TWO,)},
            ["shards missing: "],
            ["shards missing: ", "strict: 1 findings"],
        ),
        ({"findings": ("one", "two")}, [], ["strict: 2 findings"]),
        ({"gated": 0}, [], ["strict: gated 0 of 4"]),
        ({"gated": 0, "mode": "update"}, [], []),
    ],
)
def test_why_a_run_fails(fields: dict[str, object], plain: list[str], strict: list[str]) -> None:
    """As it would have by itself, strict or not; and by what no run writes, so that no strange file passes."""
    _, run = shard(1, 0, 4, **fields)
    for expected, asked in ((plain, False), (strict, True)):
        found = list_failure_reasons(run, strict=asked)
        assert len(found) == len(expected)
        assert all(text.startswith(begins) for text, begins in zip(found, expected, strict=True))


RUNS = (sample_run(2, seed=1), sample_run(2, seed=2, product="other"))


def test_there_and_back() -> None:
    """Two runs, each with a name that says which; one run is an ordinary results file; none is refused."""
    data = encode_merged(RUNS)
    assert decode_merged(data, "m.json") == [("m.json (1 of 2)", RUNS[0]), ("m.json (2 of 2)", RUNS[1])]
    assert encode_merged(RUNS[:1]) == json_results.encode(RUNS[0])
    assert decode_merged(encode_merged(RUNS[:1]), "m.json") is None
    with pytest.raises(ValueError, match="at least one"):
        encode_merged([])


def test_readers_of_one_run_say_what_it_is() -> None:
    """Not that a field is missing."""
    with pytest.raises(ResultsFileError, match=r"m.json holds the runs of several devices, .* name the results file"):
        json_results.decode(encode_merged(RUNS), "m.json")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"schema": 1, "merged": []}', "not a list of 1 to 1000 runs"),
        (b'{"schema": 1, "merged": {"a": 1}}', "not a list of 1 to 1000 runs"),
        (b'{"schema": 1, "merged": [1]}', r"m.json \(1 of 1\) has no integer field 'schema'"),
        (b'{"schema": 9, "merged": [1]}', "field 'schema' is not one of 1 to 5"),
        (b'{"schema": true, "merged": [1]}', "field 'schema' is not one of 1 to 5"),
        (b'{"schema": 1, "merged": [{"schema": 1, "merged": [1]}]}', "holds the runs of several devices"),
    ],
)
def test_what_is_no_list_of_runs(data: bytes, said: str) -> None:
    """Is refused in words, a merged file within one, too."""
    with pytest.raises(ResultsFileError, match=said):
        decode_merged(data, "m.json")


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"{" * 2000, b'{"schema": 1}'])
def test_other_files_are_left_to_their_readers(data: bytes) -> None:
    """None, whatever they hold."""
    assert decode_merged(data, "m.json") is None
