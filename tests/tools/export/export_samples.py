"""Runs to export, hostile names among them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_attnperf.records import CaseKey, CheckReport, DeviceInfo, ErrorFigures, Fingerprint, ProcessSummary, Verdict
from pytest_attnperf.reports.run.joined import join_runs
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.testing.sample_runs import sample_run
from pytest_attnperf.tools.export.exported_cases import Exported, choose_cases

DATA = Path(__file__).parents[2] / "data" / "exports"

HOSTILE = (
    "two\nlines",
    "\x1b[2J\x1b[31mPASSED",
    "<script>alert(1)</script>",
    "`| @team |`",
    "\ud800 \u202e reversed",
    "::error::no",
    "z" * 100_000,
    "z" * 100_000 + "y",
    "\U0001f600" * 400,
    "x #0123456789abcdef",
    "w on sm_90/other",
    "w_bencher_ignore",
    " ",
)
"""Names of workloads that may stand in a file from a stranger."""

SIX = (Verdict.SAME, Verdict.SLOWER, Verdict.INCORRECT, Verdict.UNSUPPORTED, Verdict.RIGHT, Verdict.SUSPICIOUS)


def mixed_run(**fields: Any) -> RunResult:
    """Six cases, two of which have a time to export: the first, and a slower one with three processes."""
    run = sample_run(6, verdicts=[Verdict.SAME])
    cases = [replace(case, verdict=verdict) for case, verdict in zip(run.cases, SIX, strict=True)]
    (process,) = cases[1].first
    second = tuple(replace(process, median_us=process.median_us * factor) for factor in (1.0, 1.02, 0.99))
    cases[1] = replace(cases[1], second=second, median_us=process.median_us)
    return replace(run, **{"cases": tuple(cases), **fields})


def hostile_run() -> RunResult:
    """Right and timed cases with every text of HOSTILE as workload, backend, commit, device and version."""
    run = sample_run(len(HOSTILE), verdicts=[Verdict.SAME])
    cases = tuple(
        replace(
            case,
            key=CaseKey("s", text if number % 2 else "b", text, text if number % 3 else ""),
            nodeid=f"t.py::test[{text}]",
            summary=text,
            figures=replace(case.figures, definition={text: text, "n": [text]}) if case.figures else None,
        )
        for number, (case, text) in enumerate(zip(run.cases, HOSTILE, strict=True))
    )
    everything = "".join(text[:50] for text in HOSTILE)
    device = DeviceInfo("cuda", "sm_90", everything, everything, memory_bytes=1 << 200)
    return replace(run, cases=cases, commit=everything, version=everything, started=everything, device=device)


def export(*runs: RunResult) -> Exported:
    """The cases of these runs."""
    return choose_cases(join_runs([(f"{number}.json", run) for number, run in enumerate(runs)]))


def read_strictly(text: str) -> Any:
    """JSON as strict readers have it: in UTF-8, with no NaN, no Infinity, and no key twice in an object."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    def once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    return json.loads(text.encode("utf-8", "strict"), parse_constant=refuse, object_pairs_hook=once)


def list_texts(value: Any) -> list[str]:
    """Every text in decoded JSON, keys included."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [*map(str, value), *(text for one in value.values() for text in list_texts(one))]
    return [text for one in value for text in list_texts(one)] if isinstance(value, list) else []


def make_process(name: str, block_us: tuple[float, ...]) -> ProcessSummary:
    """One process with a median of 2 us."""
    return ProcessSummary(2.0, 1.0, 2.0, block_us, 10, "graph", process=name)


def make_judged(**changes: Any) -> CaseResult:
    """A case as the judge leaves it: SAME, of one process."""
    plain = CaseResult(
        CaseKey("s", "b", "w"),
        "test_s.py::test_s",
        Verdict.SAME,
        "",
        first=(make_process("pid 1", (1.0, 2.0, 3.0)),),
        checks=(CheckReport((ErrorFigures("check", "out", 0.0, 1.0, 0.0, 1.0),)),),
        fingerprint=Fingerprint({"arch": "sm_90", "product": "h200", "timer": "graph"}, {"driver": "580"}),
    )
    return replace(plain, **changes)
