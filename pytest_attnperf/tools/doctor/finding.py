"""What a probe found: one line, what it means for the numbers, and what mends it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Status(str, Enum):
    """How a finding stands, from good to bad; UNKNOWN where the probe itself failed."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    name      'torch', 'aiter', 'render nodes': short, unique in a report
    value     what was seen, one line: '2.13.0+cpu, CPU only'
    meaning   what it means for the numbers, one sentence
    fix       the command, or the step, that mends it; '' where nothing is to be done
    details   shown with -v and in the bundle
    """

    name: str
    status: Status
    value: str
    meaning: str = ""
    fix: str = ""
    details: tuple[str, ...] = ()
