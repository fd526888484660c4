"""Whether shards fit together: honest ones do, and each way to leave something out or bring something in is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_attnperf.records import DeviceInfo, Verdict
from pytest_attnperf.records.notes import NoteKind, kind_of
from pytest_attnperf.records.shards import ShardManifest, ShardRecord
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.reports.files.merged import list_failure_reasons, merge_runs
from pytest_attnperf.reports.files.shards import find_shard_faults, is_empty_shard
from pytest_attnperf.results import RunResult
from pytest_attnperf.testing.sample_runs import sample_run

WHOLE = sample_run(6, verdicts=[Verdict.SAME])
NAMES = tuple(str(case.key) for case in WHOLE.cases)
PARTS = (NAMES[:3], NAMES[3:], ())
MANIFEST = ShardManifest("github 7", WHOLE.commit, PARTS)

Runs = list[tuple[str, RunResult]]


def shard(index: int, manifest: ShardManifest = MANIFEST, run: RunResult = WHOLE) -> RunResult:
    """An honest shard of this manifest, from 1; the last one of MANIFEST is empty."""
    cases = tuple(case for case in run.cases if str(case.key) in manifest.parts[index - 1])
    record = ShardRecord(index, len(manifest.parts), manifest.compute_digest(), f"node{index}", ("GPU-1",))
    return replace(
        run, cases=cases, gated=len(cases), selected=len(cases), run_id=f"{run.run_id}{index}", shards=(record,),
        shard_manifest=manifest, device=run.device if cases else None, fingerprint=run.fingerprint if cases else None,
    )  # fmt: skip


def shards(*changed: tuple[int, RunResult]) -> Runs:
    """All three, with some replaced."""
    found = {index: shard(index) for index in (1, 2, 3)} | dict(changed)
    return [(f"{index}.json", run) for index, run in found.items()]


def of_other_manifest(index: int, **fields: object) -> tuple[int, RunResult]:
    """A shard that divided something else, and says so in its record."""
    return index, shard(index, replace(MANIFEST, **fields))  # type: ignore[arg-type]


def test_honest_shards_are_one_run() -> None:
    """The empty one joins the others, and nothing is wrong: one by one, joined, and read back from a file."""
    assert find_shard_faults(shards()) == []
    assert [is_empty_shard(run) for _, run in shards()] == [False, False, True]
    merged = merge_runs(shards())
    ((_, run),) = merged.runs
    assert (merged.shards, merged.faults, run.cases, run.device) == ((3,), (), WHOLE.cases, WHOLE.device)
    assert [(record.index, record.node) for record in run.shards] == [(1, "node1"), (2, "node2"), (3, "node3")]
    assert list_failure_reasons(run, strict=True) == []
    again = json_results.decode(json_results.encode(run), "again")
    assert (again.shard_manifest, again.shards) == (MANIFEST, run.shards)
    assert find_shard_faults([("again", again)]) == []


def test_a_file_that_is_given_twice_counts_once() -> None:
    """As everywhere. Runs without shards are nobody's concern."""
    assert find_shard_faults([*shards(), ("copy.json", shard(2)), ("whole.json", WHOLE)]) == []


FULL = shard(1)
LESS = replace(FULL, cases=FULL.cases[1:])
FOREIGN = replace(FULL, cases=(*FULL.cases, WHOLE.cases[4]))
UNLISTED = replace(FULL, cases=(*FULL.cases, sample_run(7).cases[6]))
OTHER_COUNT = replace(FULL, shards=(replace(FULL.shards[0], count=4),))
NO_INDEX = replace(FULL, shards=(replace(FULL.shards[0], index=0),))
EDITED = replace(FULL, shard_manifest=replace(MANIFEST, parts=(NAMES[:2], NAMES[3:], ())), cases=FULL.cases[:2])
STRIPPED = replace(FULL, shards=(), shard_manifest=None)
NO_RECORD, NO_MANIFEST = replace(FULL, shards=()), replace(FULL, shard_manifest=None)
OLDER = replace(WHOLE, commit="0" * 12)


@pytest.mark.parametrize(
    ("runs", "kind", "said"),
    [
        (shards()[:1], NoteKind.MISSING_SHARDS, f"shards missing: 2, 3 of 3; nobody ran 3 cases: {NAMES[3]}, "),
        (shards()[:2], NoteKind.MISSING_SHARDS, "shards missing: 3 of 3, which had no cases"),
        (shards((1, LESS)), NoteKind.MISSING_SHARDS, f"1.json lacks 1 case of its shard, which nobody ran: {NAMES[0]}"),
        (shards((1, FOREIGN)), NoteKind.MIXED_SHARDS, f"1.json ran 1 case of other shards: {NAMES[4]} (of shard 2)"),
        (shards((1, UNLISTED)), NoteKind.MIXED_SHARDS, "1.json ran 1 case that its manifest lacks: "),
        (shards((1, OTHER_COUNT)), NoteKind.MIXED_SHARDS, "1.json: is shard 1 of 4, but its manifest has 3 parts"),
        (shards((1, NO_INDEX)), NoteKind.MIXED_SHARDS, "1.json: is shard 0 of 3, but its manifest has 3 parts"),
        (shards((1, EDITED)), NoteKind.MIXED_SHARDS, "1.json: shard 1 is of manifest "),
        (shards((1, STRIPPED)), NoteKind.MISSING_SHARDS, "shards missing: 1 of 3"),
        (shards((1, NO_RECORD)), NoteKind.MIXED_SHARDS, "1.json: has a manifest of shards, but does not say which"),
        (shards((1, NO_MANIFEST)), NoteKind.MIXED_SHARDS, "1.json: shard 1 is of manifest "),
        (shards((1, replace(shard(2), run_id="x"))), NoteKind.MIXED_SHARDS, "shard 2 of 3 is there 2 times: 1.json, 2"),
        (
            shards(of_other_manifest(1, run="github 8")),
            NoteKind.MIXED_SHARDS,
            "shards of different runs: run id 'github 8' in 1.json and 'github 7' in 2.json",
        ),
        (
            shards(of_other_manifest(1, parts=(*PARTS, ()))),
            NoteKind.MIXED_SHARDS,
            "shards of different runs: number of shards '4' in 1.json and '3' in 2.json",
        ),
        (
            shards(of_other_manifest(1, parts=(NAMES[:2], NAMES[3:], ()))),
            NoteKind.MIXED_SHARDS,
            "shards of different runs: cases '5 (",
        ),
        (
            shards(of_other_manifest(1, parts=(NAMES[:2], NAMES[2:], ()))),
            NoteKind.MIXED_SHARDS,
            "shards of different runs: 1.json and 2.json divided the same cases differently",
        ),
        (
            shards((1, shard(1, replace(MANIFEST, commit="0" * 12), OLDER))),
            NoteKind.MIXED_SHARDS,
            "shards of different runs: commit '000000000000' in 1.json and '4f2c1ab90d11' in 2.json",
        ),
        (
            shards((1, replace(FULL, commit="0" * 12))),
            NoteKind.MIXED_SHARDS,
            "1.json: its manifest is of commit '4f2c1ab90d11', its cases are of '000000000000'",
        ),
    ],
)  # fmt: skip
def test_every_liar_is_named(runs: Runs, kind: NoteKind, said: str) -> None:
    """By what it did."""
    found = find_shard_faults(runs)
    assert [text for text in found if text.startswith(said) and kind_of(text) is kind], found
    assert list(merge_runs(runs).faults) == found


def test_a_manifest_that_has_a_case_twice_is_refused() -> None:
    """Two shards would both have run it, each as its own."""
    twice = replace(MANIFEST, parts=(NAMES[:4], NAMES[3:], ()))
    found = find_shard_faults([(f"{index}.json", shard(index, twice)) for index in (1, 2, 3)])
    assert f"1.json: its manifest has cases in two parts: {NAMES[3]}" in found


def test_two_devices_may_be_sharded_apart() -> None:
    """Each with all of its shards; a shard that is missing on one of them is missing."""
    other = replace(WHOLE, device=DeviceInfo("cuda", "gfx942", "mi300x"), run_id="other")
    two = replace(MANIFEST, parts=(NAMES[:1], NAMES[1:]))
    beside = [(f"other{index}.json", shard(index, two, other)) for index in (1, 2)]
    assert find_shard_faults([*shards(), *beside]) == []
    (fault,) = find_shard_faults([*shards(), beside[0]])
    assert fault.startswith("shards missing: 2 of 2; nobody ran 5 cases")


@pytest.mark.parametrize(
    "hostile",
    [
        lambda name: replace(MANIFEST, parts=((f"{name}\x1b[31m\n",), NAMES, ())),
        lambda name: replace(MANIFEST, parts=((name * 100_000,), NAMES, ())),
        lambda _: replace(MANIFEST, run="\x1b[2J" * 1000),
        lambda _: replace(MANIFEST, parts=tuple((str(number),) for number in range(5000))),
    ],
)
def test_what_a_hostile_file_says_is_one_short_line(hostile: Callable[[str], ShardManifest]) -> None:
    """Without control characters, whatever names it has."""
    found = find_shard_faults(shards((1, shard(1, hostile("x")))))
    assert found
    assert all(text.isprintable() and len(text) <= 600 for text in found)
