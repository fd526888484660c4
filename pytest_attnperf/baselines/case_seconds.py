"""Seconds that each case took in an earlier run, in `baselines/case_seconds.json`: `--attnperf-shard` divides by them.

The file is committed, so that every shard of a commit reads the same figures. It is one file for all devices, because a
run is divided before a worker has said which device it has; of a case that several devices ran it holds the longest.

Format history: 1 = first published form.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pytest_attnperf.baselines.schema import json_text, require_schema
from pytest_attnperf.baselines.store import read_content
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.records.atomic_file import write_atomically
from pytest_attnperf.records.shards import name_in_manifest
from pytest_attnperf.records.unique_keys import require_unique_keys
from pytest_attnperf.results import RunResult

CASE_SECONDS = "case_seconds.json"
CASE_SECONDS_SCHEMA = 1
SECONDS_MOST = 1e6
"""Most seconds of a case, which no case reaches."""

DIGITS = 1


@dataclass(frozen=True)
class CaseSeconds:
    """The file's content: name of a case or kernel, as manifests have it, and its wall time in seconds."""

    schema: int
    seconds: dict[str, float]


def load_case_seconds(path: Path) -> Mapping[str, float]:
    """Returns the seconds of the file at `path`; none if there is no file. Raises BaselineError for any other content
    than finite numbers from 0 to SECONDS_MOST, each case once."""
    if not path.exists():
        return {}
    data = read_content(path)
    require_schema(data, str(path), CASE_SECONDS_SCHEMA)
    again = "make it again with attnperf report RESULTS --out FILE --seconds FILE"
    try:
        found = msgspec.json.decode(data, type=CaseSeconds).seconds
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BaselineError(f"{path}: holds no seconds of cases ({error}); {again}") from error
    require_unique_keys(data, str(path), advice=again)
    for name, seconds in found.items():
        if not (math.isfinite(seconds) and 0 <= seconds <= SECONDS_MOST):
            raise BaselineError(
                f"{path}: field `seconds` has {seconds} for {name[:200]!r}, expected 0 to {SECONDS_MOST:g}; {again}"
            )
    return found


def collect_seconds(runs: Iterable[RunResult]) -> dict[str, float]:
    """Returns the seconds of every case and kernel that took any, the longest of each, sorted by name."""
    found: dict[str, float] = {}
    for run in runs:
        took = [(case.key, case.seconds) for case in run.cases] + [(code.key, code.seconds) for code in run.code]
        for key, seconds in took:
            name = name_in_manifest(key)
            found[name] = max(found.get(name, 0.0), round(min(seconds, SECONDS_MOST), DIGITS))
    return {name: seconds for name, seconds in sorted(found.items()) if seconds > 0}


def write_case_seconds(path: Path, runs: Iterable[RunResult]) -> None:
    """Writes the seconds of these runs to `path` in place of what it held, atomically. Creates folders."""
    content = {"schema": CASE_SECONDS_SCHEMA, "seconds": collect_seconds(runs)}
    write_atomically(path, json_text(content, open_levels=2))
