"""A pytest plugin for foreign_gate.py: makes every gated function slower by a share of its recorded time.

FOREIGN_SLOWER=FILE SHARE names the results of a recording. The function spins on the GPU, in a kernel of its own, for
that share of what the recording says: real work that a change could have added, behind the case's own.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_attnperf.plugin.fixtures import CaseHandle
from pytest_attnperf.reports.files import json_results

MOST_MHZ = 1980.0
"""Cycles of an H100's or H200's multiprocessors in a microsecond, at most; with fewer, the spinning takes longer."""

LAUNCH_US = 1.0
"""What one more kernel costs by itself: a spin of no cycles would take this long."""

_gate = CaseHandle.gate


def _recorded() -> tuple[dict[str, float], float]:
    """({node id: microseconds}, share)."""
    file, share = os.environ["FOREIGN_SLOWER"].rsplit(" ", 1)
    cases = json_results.read(Path(file)).cases
    return {case.nodeid: case.median_us for case in cases if case.median_us}, float(share)


def gate(self: CaseHandle, name: str, fn: Callable[..., Any], **more: Any) -> None:
    """As the fixture's, of a slower function."""
    medians_us, share = _recorded()
    node = os.environ["PYTEST_CURRENT_TEST"].rsplit(" (", 1)[0]
    if node not in medians_us:
        pytest.fail(f"{node} has no recorded time that it could be slower than: record it first", pytrace=False)
    cycles = int(MOST_MHZ * max(0.0, share * medians_us[node] - LAUNCH_US))

    @functools.wraps(fn)
    def slower(*tensors: torch.Tensor) -> Any:
        result = fn(*tensors)
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        return result

    _gate(self, name, slower, **more)


CaseHandle.gate = gate  # type: ignore[method-assign]
