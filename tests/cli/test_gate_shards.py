"""`attnperf gate` and `attnperf report --out` of shards: what one of them leaves out or brings in fails the whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.baselines.case_seconds import load_case_seconds
from pytest_attnperf.cli.commands.gate import list_failures
from pytest_attnperf.cli.program import main
from pytest_attnperf.records import Verdict
from pytest_attnperf.records.shards import ShardManifest, ShardRecord
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.reports.run.joined import join_runs
from pytest_attnperf.results import RunResult
from pytest_attnperf.testing.sample_runs import sample_run

Captured = pytest.CaptureFixture[str]
WHOLE = sample_run(4, verdicts=[Verdict.SAME])
NAMES = tuple(str(case.key) for case in WHOLE.cases)
MANIFEST = ShardManifest("slurm 7", WHOLE.commit, (NAMES[:2], NAMES[2:], ()))


def shard(index: int, manifest: ShardManifest = MANIFEST) -> RunResult:
    """An honest shard, from 1; the third is empty."""
    cases = tuple(case for case in WHOLE.cases if str(case.key) in manifest.parts[index - 1])
    record = ShardRecord(index, len(manifest.parts), manifest.compute_digest(), f"node{index}")
    return replace(WHOLE, cases=cases, gated=len(cases), selected=len(cases), run_id=f"id{index}",
                   shard_manifest=manifest, shards=(record,), device=WHOLE.device if cases else None)  # fmt: skip


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Three honest shards and a folder for baselines; no CI."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("ATTNPERF_GATE", raising=False)
    Path("baselines").mkdir()
    for index in (1, 2, 3):
        json_results.write(Path(f"{index}.json"), shard(index))


def test_honest_shards_pass(capsys: Captured) -> None:
    """Joined, judged one by one, and judged after they were joined; the empty one is no gap, even under --strict."""
    files = ["1.json", "2.json", "3.json"]
    assert main(["report", *files, "--out", "joined.json", "--strict"]) == 0
    assert capsys.readouterr().out.startswith("1.json, 2.json, 3.json (3 shards): 4 same on sm_90/sample")
    for given in (files, ["joined.json"]):
        assert main(["gate", "--results", *given]) == 0
        assert capsys.readouterr().out.rstrip().endswith("passed")
    joined = join_runs([(name, shard(index)) for index, name in enumerate(files, start=1)])
    assert list_failures(joined, strict=True) == []
    assert list_failures(join_runs([("3.json", shard(3))]), strict=True) == ["strict: gated 0 of 0"]


FULL = shard(1)
SMALLER = replace(MANIFEST, parts=(NAMES[:1], NAMES[2:], ()))
LIARS: dict[str, tuple[RunResult | None, str]] = {
    "gap": (None, "shards missing: 1 of 3; nobody ran 2 cases"),
    "leaves out a case": (replace(FULL, cases=FULL.cases[:1], selected=1), "1.json lacks 1 case of its shard"),
    "another's case": (
        replace(FULL, cases=(*FULL.cases, WHOLE.cases[3]), selected=3),
        "1.json ran 1 case of other shards",
    ),
    "another n": (shard(1, replace(MANIFEST, parts=(*MANIFEST.parts, ()))), "number of shards '4' in 1.json and '3'"),
    "older commit": (
        replace(shard(1, replace(MANIFEST, commit="0" * 12)), commit="0" * 12),
        "commit '000000000000' in 1.json and ",
    ),
    "edited manifest": (replace(shard(1, SMALLER), shards=FULL.shards), "1.json: shard 1 is of manifest"),
    "edited with its hash": (shard(1, SMALLER), "shards of different runs: cases '3 ("),
    "no manifest": (replace(FULL, shards=(), shard_manifest=None), "shards missing: 1 of 3"),
}


@pytest.mark.parametrize("liar", LIARS)
def test_a_liar_fails_the_gather(liar: str, capsys: Captured) -> None:
    """Strict or not, whether the gate gets the shards or what was joined of them, and is never allowed."""
    run, said = LIARS[liar]
    files = ["1.json", "2.json", "3.json"][run is None :]
    if run is not None:
        json_results.write(Path("1.json"), run)
    assert main(["report", *files, "--out", "joined.json", "--no-strict", "--allow-commits"]) == 1
    assert f"{said}" in capsys.readouterr().out
    for given in (files, ["joined.json"]):
        assert main(["gate", "--results", *given, "--no-strict"]) == 1
        assert said in " ".join(capsys.readouterr().out.split())


def test_seconds_of_a_run_are_written_for_the_next(capsys: Captured) -> None:
    """By the command that joins it, and never over results."""
    took = replace(shard(1), cases=(replace(FULL.cases[0], seconds=7.5), *FULL.cases[1:]))
    json_results.write(Path("1.json"), took)
    words = ["report", "1.json", "2.json", "3.json", "--out", "joined.json", "--seconds"]
    assert main([*words, "baselines/case_seconds.json"]) == 0
    assert "written: baselines/case_seconds.json" in capsys.readouterr().out
    assert load_case_seconds(Path("baselines/case_seconds.json"))[NAMES[0]] == 7.5
    assert main([*words, "./1.json"]) == 2
    assert "--seconds 1.json is a file of results; name another" in capsys.readouterr().err
    assert main(["report", "baselines"]) == 2
    assert "baselines holds no results and no stored times" in capsys.readouterr().err
