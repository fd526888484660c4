"""Makes the rows of a store from a run: selects and checks what is kept, and computes digests to find it by."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from pytest_attnperf.records import CaseKey, DeviceInfo, Verdict
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.tools.history.history_failures import HistoryError

WRONG = frozenset({Verdict.INCORRECT, Verdict.ERROR})
"""Verdicts that are stored even without a time: a wrong result belongs to a case's history."""

Row = dict[str, Any]


@dataclass
class RunRows:
    """The rows that one run adds. `cases` and `facts` are keyed by digest; `measurements` refer to them by digest."""

    run: Row
    cases: dict[str, Row] = field(default_factory=dict)
    facts: dict[str, Row] = field(default_factory=dict)
    measurements: list[Row] = field(default_factory=list)


def make_rows(run: RunResult, source: str) -> RunRows:
    """Returns the database rows that a run adds: its own, and those of cases that are timed or wrong (without a time);
    of no case if the run has no device. If a case occurs twice, keeps the failing one, else the later one. Raises
    HistoryError if the start is no date, or a time is not finite and positive."""
    rows = RunRows(_run_row(run, source))
    if run.device is None:
        return rows
    kept: dict[str, CaseResult] = {}
    for case in run.cases:
        name = str(case.key)
        if case.median_us is None and case.verdict not in WRONG:
            continue
        if name not in kept or case.fails or not kept[name].fails:
            kept[name] = case
    for case in kept.values():
        _add_case(rows, run, run.device, case)
    return rows


def make_run_id(run: RunResult) -> str:
    """Returns the id that the run has; without one, a digest of start, commit, command and cases, equal for equal
    content."""
    if run.run_id:
        return make_storable(run.run_id)
    cases = [[str(case.key), case.verdict.value, case.median_us] for case in run.cases]
    return f"content-{digest_data([run.started, run.commit, run.command, cases])[:32]}"


def parse_seconds(started: str, where: str = "run") -> float:
    """Returns an ISO 8601 time as seconds since 1970; without a zone it is UTC. Raises HistoryError for any other text;
    `where` names the time in the message."""
    try:
        moment = datetime.fromisoformat(f"{started[:-1]}+00:00" if started.endswith(("Z", "z")) else started)
        # In UTC, because the first and last representable day may be out of range in a local zone.
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).astimezone(timezone.utc).timestamp()
    except (ValueError, OverflowError) as error:
        raise HistoryError(
            f"history: the {where} started at {started[:60]!r}, which is no date like 2026-01-31T12:00:00+00:00"
        ) from error


def digest_key(key: CaseKey) -> str:
    """Returns the SHA-256 of a case's key as hexadecimal text, by which the case is found on any device."""
    return digest_data(make_storable(str(key)))


def digest_data(value: object) -> str:
    """Returns the SHA-256 of a value's JSON as hexadecimal text."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def make_storable(text: str) -> str:
    """Returns the text with NUL and lone surrogates replaced, because SQLite or PostgreSQL cannot store them."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def _run_row(run: RunResult, source: str) -> Row:
    run_id = make_run_id(run)
    return {
        "digest": digest_data(run_id),
        "run_id": run_id,
        "started": parse_seconds(run.started),
        "started_text": make_storable(run.started),
        "commit_id": make_storable(run.commit),
        "branch": make_storable(run.provenance.get("branch", "")),
        "source": make_storable(source),
        "version": make_storable(run.version),
        "mode": make_storable(run.mode),
        "appended": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "complete": run.complete,
        "provenance": _storable_facts(run.provenance),
    }


def _add_case(rows: RunRows, run: RunResult, device: DeviceInfo, case: CaseResult) -> None:
    key = {name: make_storable(getattr(case.key, name)) for name in ("suite", "backend", "workload", "label")}
    names = {**key, "arch": make_storable(device.arch), "product": make_storable(device.product)}
    identity = digest_data(list(names.values()))
    nodeid = make_storable(case.nodeid)
    rows.cases[identity] = {"digest": identity, "key_digest": digest_key(case.key), "nodeid": nodeid, **names}
    fingerprint = case.fingerprint or run.fingerprint
    processes = [process.median_us for process in case.second or case.first]
    where = f"run {rows.run['run_id'][:60]!r}, case {str(case.key)[:200]!r}"
    rows.measurements.append(
        {
            "case": identity,
            "started": rows.run["started"],
            "machine": _add_facts(rows, fingerprint.must_match if fingerprint else {}),
            "environment": _add_facts(rows, fingerprint.named if fingerprint else {}),
            "verdict": case.verdict.value,
            "median_us": _check_figure(case.median_us, "median_us", where),
            "baseline_us": _check_figure(case.baseline_us, "baseline_us", where),
            "ratio": _check_figure(case.ratio, "ratio", where),
            "process_us": [_check_figure(one, "a process's median_us", where) for one in processes],
        }
    )


def _add_facts(rows: RunRows, facts: dict[str, str]) -> str:
    plain = _storable_facts(facts)
    identity = digest_data(plain)
    rows.facts[identity] = {"digest": identity, "facts": plain}
    return identity


def _storable_facts(facts: dict[str, str]) -> dict[str, str]:
    return {make_storable(name): make_storable(value) for name, value in sorted(facts.items())}


def _check_figure(value: float | None, name: str, where: str) -> float | None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise HistoryError(f"history: {where}: {name} is {value}; a time must be finite and positive. Nothing stored")
    return value


def sort_by_digest(rows: Iterable[Row]) -> list[Row]:
    """Returns the rows sorted by digest: writers that insert in one order cannot deadlock."""
    return sorted(rows, key=lambda row: str(row["digest"]))
