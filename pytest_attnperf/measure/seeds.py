"""Seeds of the inputs that a case is timed and checked on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_attnperf.workloads.base import Workload


@dataclass(frozen=True)
class Seeds:
    """Seeds of a case's inputs: `timed` belongs to the workload, `check` and `final` are new in every process."""

    timed: int
    check: int
    final: int


def timed_seed(workload: Workload) -> int:
    """Returns 32 bits of the SHA-256 of the workload's id: the timed inputs are the same everywhere and always."""
    return int.from_bytes(hashlib.sha256(workload.id.encode()).digest()[:4], "big")
