"""Finds which part of a run this job has, and the id of the run, in variables of CI systems and schedulers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_attnperf.errors import UsageError

INDEX, COUNT, RUN = "ATTNPERF_SHARD_INDEX", "ATTNPERF_SHARD_COUNT", "ATTNPERF_SHARD_RUN"
"""Variables that a job sets itself where its system has none: index from 0, number of parts, and id of the run."""

SPEEDS = "ATTNPERF_SHARD_SPEEDS"
"""Variable with the relative speed of the node of each shard, alike in all jobs."""

RUN_LIMIT, SPEED_LEAST = 200, 0.01


@dataclass(frozen=True)
class ShardVariables:
    """The variables of one system. `first` is the smallest index: a number, or the variable that holds it."""

    system: str
    index: str
    count: str
    first: str = "0"


@dataclass(frozen=True)
class FoundShard:
    """The part of this job: `index` from 1 to `count`, by the variables of `system`."""

    system: str
    index: int
    count: int


SYSTEMS = (
    ShardVariables("Buildkite", "BUILDKITE_PARALLEL_JOB", "BUILDKITE_PARALLEL_JOB_COUNT"),
    ShardVariables("GitLab", "CI_NODE_INDEX", "CI_NODE_TOTAL", "1"),
    ShardVariables("Slurm", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN"),
    ShardVariables("Kubernetes", "JOB_COMPLETION_INDEX", COUNT),
)
STEP = "SLURM_ARRAY_TASK_STEP"
"""Distance of two task ids; 1 where it is not set."""

OWN = ShardVariables("the job", INDEX, COUNT)

RUN_IDS = (
    *(("", RUN), ("github ", "GITHUB_RUN_ID"), ("gitlab ", "CI_PIPELINE_ID"), ("buildkite ", "BUILDKITE_BUILD_ID")),
    *(("jenkins ", "BUILD_TAG"), ("slurm ", "SLURM_ARRAY_JOB_ID")),
)
"""What an id begins with, and its variable; the first one that is set counts. Attempts of a run have its id, so that
a shard that is run again belongs to the others."""

GITHUB_HINT = (
    f"; GitHub sets none for a matrix: give the step env {INDEX}: ${{{{ strategy.job-index }}}} and "
    f"{COUNT}: ${{{{ strategy.job-total }}}}"
)


def find_shard(environ: Mapping[str, str]) -> FoundShard:
    """Returns the part that the job's own variables name, else those of a CI system or scheduler.

    Raises UsageError, with what was looked for and found, where none or only one of a pair is set, where a value is no
    number in its range, and where two systems disagree.
    """
    if environ.get(INDEX):
        return _read_shard(OWN, environ)
    found = [_read_shard(system, environ) for system in SYSTEMS if environ.get(system.index)]
    if not found:
        wanted = ", ".join(f"{one.index} with {one.count}" for one in (OWN, *SYSTEMS))
        hint = GITHUB_HINT if environ.get("GITHUB_ACTIONS") else ""
        raise UsageError(
            f"--attnperf-shard=auto found no part of a run in the environment; looked for {wanted}; "
            f"found {_list_set(environ)}{hint}; or give --attnperf-shard=INDEX/COUNT"
        )
    others = [one for one in found if (one.index, one.count) != (found[0].index, found[0].count)]
    if others:
        said = " and ".join(f"{one.index}/{one.count} by {one.system}" for one in (found[0], others[0]))
        raise UsageError(
            f"--attnperf-shard=auto found two different parts: {said}; give --attnperf-shard=INDEX/COUNT, or set "
            f"{INDEX} (from 0) and {COUNT}"
        )
    return found[0]


def find_run_id(environ: Mapping[str, str]) -> str:
    """Returns the id that all jobs of one CI run or job array have, e.g. 'github 123'; '' if no variable holds one."""
    for system, variable in RUN_IDS:
        if value := environ.get(variable, "").strip():
            return f"{system}{value}".encode("utf-8", "backslashreplace").decode()[:RUN_LIMIT]
    return ""


def find_speeds(environ: Mapping[str, str], count: int) -> tuple[float, ...]:
    """Returns the relative speed of the node of each shard; () without the variable SPEEDS. Raises UsageError for
    another number of values than `count`, and for a value that is no number from 0.01 to 100."""
    text = environ.get(SPEEDS, "").strip()
    if not text:
        return ()
    words = text.split(",")
    if len(words) != count:
        raise UsageError(f"{SPEEDS} has {len(words)} values for {count} shards; give one of each, e.g. 1,1,1.5")
    try:
        found = tuple(map(float, words))
    except ValueError:
        found = ()
    if not found or not all(SPEED_LEAST <= speed <= 1 / SPEED_LEAST for speed in found):
        raise UsageError(f"{SPEEDS}={text[:80]!r} must be numbers from 0.01 to 100, separated by commas")
    return found


def _read_shard(system: ShardVariables, environ: Mapping[str, str]) -> FoundShard:
    index, count = (_read_number(name, system, environ) for name in (system.index, system.count))
    first = int(system.first) if system.first.isdigit() else _read_number(system.first, system, environ)
    step = _read_number(STEP, system, environ) if system.system == "Slurm" and environ.get(STEP) else 1
    place, rest = divmod(index - first, max(step, 1))
    if rest or not 0 <= place < count:
        told = ", ".join(f"{name}={environ[name]}" for name in (system.index, system.count, system.first, STEP)
                         if name in environ)  # fmt: skip
        raise UsageError(
            f"--attnperf-shard=auto: {told} is no part of a run: indices must be {first} to "
            f"{first + (count - 1) * max(step, 1)} in equal steps; give --attnperf-shard=INDEX/COUNT"
        )
    return FoundShard(system.system, place + 1, count)


def _read_number(name: str, system: ShardVariables, environ: Mapping[str, str]) -> int:
    text = environ.get(name, "").strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    why = f"is {text[:40]!r}, no whole number" if text else "is not set"
    raise UsageError(
        f"--attnperf-shard=auto: {system.index}={environ.get(system.index, '')[:40]} is set by {system.system}, but "
        f"{name} {why}; set it, or give --attnperf-shard=INDEX/COUNT"
    )


def _list_set(environ: Mapping[str, str]) -> str:
    """Returns 'only CI_NODE_TOTAL' for the variables of the systems that are set; 'none of them' without any."""
    names = dict.fromkeys(name for one in (OWN, *SYSTEMS) for name in (one.index, one.count))
    there = [name for name in names if environ.get(name)]
    return f"only {', '.join(there)}" if there else "none of them"
