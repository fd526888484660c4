"""The false-alarm rate belongs to a run: its shards share it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.records.shards import ShardRecord
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult
from pytest_attnperf.session.rejudge.timed_cases import RejudgeSettings, rejudge_all

if TYPE_CHECKING:
    from tests.session.conftest import Bench


def test_shards_judge_as_the_whole_run_does(stored: Bench) -> None:
    """What a case's noise is allowed to be grows with the cases of all shards of its run, not with those of other
    files."""
    stored.against_base()
    case = stored.judge(time_us=110.0)
    others = [replace(case, key=replace(case.key, label=str(number))) for number in range(40)]
    device = stored.pool.wait_until_ready(0).device

    def detects(*parts: list[CaseResult], shards: bool) -> float:
        runs = [
            RunResult(
                RESULTS_SCHEMA, "0", "gate", "2026-01-01", "pytest", "c1", device, None, tuple(cases),
                selected=len(cases), shards=(ShardRecord(index, len(parts), "digest"),) if shards else (),
            )
            for index, cases in enumerate(parts, start=1)
        ]  # fmt: skip
        judged = rejudge_all([(str(len(run.cases)), run) for run in runs], _store(stored), RejudgeSettings())
        limit = judged[0][1].cases[0].detection_limit
        assert limit is not None
        return limit

    whole = detects([case, *others], shards=False)
    assert detects([case], others, shards=True) == whole
    assert detects([case], others, shards=False) == detects([case], shards=True) < whole


def _store(stored: Bench) -> BaselineStore:
    return BaselineStore(stored.store.roots[0])
