"""Runs of several devices in one file: {"schema": 3, "merged": [run, run, ...]}, each as `json_results` has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from pytest_attnperf.records.regular_file import require_unique_keys
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.reports.files.json_results import TWICE, ResultsFileError
from pytest_attnperf.results import RESULTS_SCHEMA, RunResult

RUNS_MAX = 1000
"""More runs than this nobody has merged."""


class _Merged(msgspec.Struct):
    """The whole file; a run is decoded by itself, so that its error names it."""

    schema: Any = None
    merged: msgspec.Raw = msgspec.Raw()


def encode_merged(runs: Sequence[RunResult]) -> bytes:
    """One run as an ordinary results file, several as a file of merged ones. Raises ResultsFileError, and ValueError
    for no run."""
    if not runs:
        raise ValueError("a file of merged runs needs at least one")
    parts = [json_results.encode(run).rstrip(b"\n") for run in runs]
    if len(parts) == 1:
        return parts[0] + b"\n"
    return b'{"schema": %d, "merged": [\n' % RESULTS_SCHEMA + b",\n".join(parts) + b"\n]}\n"


def decode_merged(data: bytes, where: str) -> list[tuple[str, RunResult]] | None:
    """The runs of a file of merged ones, each with the file's name and its number; None for any other file.

    Raises ResultsFileError for a list that holds something else than runs, none, or more than RUNS_MAX.
    """
    try:
        head = msgspec.json.decode(data, type=_Merged)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # left to the reader of results, which says why
    if not bytes(head.merged):
        return None
    require_unique_keys(data, where, ResultsFileError, TWICE)
    if isinstance(head.schema, bool) or head.schema not in range(1, RESULTS_SCHEMA + 1):
        raise ResultsFileError(f"{where}: field 'schema' is not one of 1 to {RESULTS_SCHEMA}, which this version reads")
    runs = _parts(head.merged)
    if not 0 < len(runs) <= RUNS_MAX:
        raise ResultsFileError(f"{where}: field 'merged' is no list of 1 to {RUNS_MAX} runs; merge the files again")
    names = [f"{where} ({number} of {len(runs)})" for number in range(1, len(runs) + 1)]
    return [(name, json_results.decode(bytes(run), name)) for name, run in zip(names, runs, strict=True)]


def _parts(merged: msgspec.Raw) -> list[msgspec.Raw]:
    try:
        return msgspec.json.decode(merged, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []
