"""Which part of a run a job has, by the variables of each system, and what is said where they tell none."""

from __future__ import annotations

import pytest

from pytest_attnperf.environment.shard_variables import FoundShard, find_run_id, find_shard, find_speeds
from pytest_attnperf.errors import UsageError

BUILDKITE = {"BUILDKITE_PARALLEL_JOB": "0", "BUILDKITE_PARALLEL_JOB_COUNT": "4"}
SLURM = {"SLURM_ARRAY_TASK_ID": "12", "SLURM_ARRAY_TASK_COUNT": "4", "SLURM_ARRAY_TASK_MIN": "10"}
STEPS = {**SLURM, "SLURM_ARRAY_TASK_ID": "16", "SLURM_ARRAY_TASK_STEP": "2"}
KUBERNETES = {"JOB_COMPLETION_INDEX": "3", "ATTNPERF_SHARD_COUNT": "4"}
GITLAB = {"CI_NODE_INDEX": "2", "CI_NODE_TOTAL": "4"}
OWN = {"ATTNPERF_SHARD_INDEX": "1", "ATTNPERF_SHARD_COUNT": "4"}


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        (BUILDKITE, FoundShard("Buildkite", 1, 4)),
        (SLURM, FoundShard("Slurm", 3, 4)),
        (STEPS, FoundShard("Slurm", 4, 4)),
        (KUBERNETES, FoundShard("Kubernetes", 4, 4)),
        (GITLAB, FoundShard("GitLab", 2, 4)),
        ({**OWN, "GITHUB_ACTIONS": "true", "JOB_COMPLETION_INDEX": "0"}, FoundShard("the job", 2, 4)),
        ({**GITLAB, **BUILDKITE, "BUILDKITE_PARALLEL_JOB": "1"}, FoundShard("Buildkite", 2, 4)),
    ],
)
def test_every_system_is_known(environ: dict[str, str], found: FoundShard) -> None:
    """From 1, whatever its first index is; the job's own variables come first."""
    assert find_shard(environ) == found


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "looked for ATTNPERF_SHARD_INDEX with ATTNPERF_SHARD_COUNT, BUILDKITE_PARALLEL_JOB with"),
        ({}, "found none of them; or give --attnperf-shard=INDEX/COUNT"),
        ({"CI_NODE_TOTAL": "1"}, "found only CI_NODE_TOTAL"),
        ({"GITHUB_ACTIONS": "true"}, "ATTNPERF_SHARD_INDEX: ${{ strategy.job-index }}"),
        ({"JOB_COMPLETION_INDEX": "3"}, "3 is set by Kubernetes, but ATTNPERF_SHARD_COUNT is not set"),
        ({**OWN, "ATTNPERF_SHARD_COUNT": "four"}, "ATTNPERF_SHARD_COUNT is 'four', no whole number"),
        ({**OWN, "ATTNPERF_SHARD_COUNT": "٤"}, "no whole number"),
        ({**KUBERNETES, "JOB_COMPLETION_INDEX": "4"}, "JOB_COMPLETION_INDEX=4, ATTNPERF_SHARD_COUNT=4 is no part"),
        ({**GITLAB, "CI_NODE_INDEX": "0"}, "indices must be 1 to 4"),
        ({**STEPS, "SLURM_ARRAY_TASK_ID": "13"}, "indices must be 10 to 16 in equal steps"),
        ({**GITLAB, **BUILDKITE}, "two different parts: 1/4 by Buildkite and 2/4 by GitLab"),
    ],
)
def test_what_is_no_part_is_refused(environ: dict[str, str], said: str) -> None:
    """With what was looked for and what was found."""
    with pytest.raises(UsageError) as refused:
        find_shard(environ)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, ""),
        ({"GITHUB_RUN_ID": "7", "GITHUB_RUN_ATTEMPT": "2"}, "github 7"),
        ({"SLURM_ARRAY_JOB_ID": "9", "SLURM_JOB_ID": "11"}, "slurm 9"),
        ({"CI_PIPELINE_ID": "5", "ATTNPERF_SHARD_RUN": " mine \n"}, "mine"),
        ({"BUILD_TAG": "x" * 500}, "jenkins " + "x" * 192),
        ({"ATTNPERF_SHARD_RUN": "\udc80"}, "\\udc80"),
    ],
)
def test_all_jobs_of_a_run_have_one_id(environ: dict[str, str], found: str) -> None:
    """Which a second attempt keeps; the job's own variable comes first."""
    assert find_run_id(environ) == found


def test_speeds_are_one_for_each_shard() -> None:
    """Positive numbers, or none at all."""
    assert find_speeds({}, 3) == ()
    assert find_speeds({"ATTNPERF_SHARD_SPEEDS": "1, 1.5,2"}, 3) == (1.0, 1.5, 2.0)
    for text, said in (("1,2", "has 2 values for 3 shards"), ("1,x,2", "must be numbers"), ("1,nan,2", "must be"),
                       ("1,0,2", "from 0.01 to 100"), ("1,inf,2", "must be")):  # fmt: skip
        with pytest.raises(UsageError) as refused:
            find_speeds({"ATTNPERF_SHARD_SPEEDS": text}, 3)
        assert said in str(refused.value)
