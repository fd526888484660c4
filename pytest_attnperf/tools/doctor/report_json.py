"""The report as JSON, for programs and for bug reports; docs/doctor.md says what each field is."""

from __future__ import annotations

from typing import Any

from pytest_attnperf import __version__
from pytest_attnperf.tools.doctor.engine import Report

SCHEMA = 1
"""Fields are added without a new number; one that is renamed or removed has one."""


def report_json(report: Report) -> dict[str, Any]:
    """Made of objects, lists, texts and numbers only."""
    return {
        "schema": SCHEMA,
        "version": __version__,
        "seconds": round(report.seconds, 3),
        "timer": report.timer,
        "counts": report.counts,
        "not_run": list(report.not_run),
        "findings": [
            {
                "probe": examined.probe,
                "group": examined.title,
                "name": finding.name,
                "status": finding.status.value,
                "value": finding.value,
                "meaning": finding.meaning,
                "fix": finding.fix,
                "details": list(finding.details),
            }
            for examined in report.examined
            for finding in examined.findings
        ],
        "probe_seconds": {examined.probe: round(examined.seconds, 3) for examined in report.examined},
    }
