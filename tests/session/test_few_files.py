"""A plain case goes through few files, and features that are off are not imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import pytest

import pytest_attnperf
from pytest_attnperf.records import Verdict

if TYPE_CHECKING:
    from tests.session.conftest import Bench

PACKAGE = Path(pytest_attnperf.__file__).parent

FEW = 20
"""Files that a case goes through in the controller; five more talk to a worker, which is in memory here."""

SERVING = {
    "workers/device_protocol.py",
    "workers/local.py",
    "workloads/family_workload.py",
    "workloads/prefill.py",
    "workloads/quantised_inputs.py",
}
"""Files that serve the case, in a run in its worker."""

OFF = ("accept", "budget", "faults", "profiling", "recording", "together", "unchanged", "warm")
"""Modules of the room that serve what a plain run does not ask for."""


def entered(bench: Bench) -> set[str]:
    """Files of the package in which a function ran while the stored case was judged SAME."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            found.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        result = bench.judge()
    finally:
        sys.setprofile(None)
    assert result.verdict is Verdict.SAME
    paths = [Path(name).relative_to(PACKAGE) for name in found if name.startswith(str(PACKAGE))]
    return {path.as_posix() for path in paths if path.parts[0] != "testing"}


def test_a_plain_case_goes_through_few_files(stored: Bench) -> None:
    """SAME asks neither for a second look nor for anything that no option asked for."""
    stored.judge()
    files = entered(stored) - SERVING
    assert len(files) <= FEW, "\n".join(sorted(files))
    assert not files & {f"session/{name}.py" for name in (*OFF, "second_looks", "interleaved", "consistent")}


@pytest.mark.parametrize("name", ["case_judge", "looking", "second_looks"])
def test_what_is_off_is_not_imported(name: str) -> None:
    """Nothing that serves an option is loaded before a run has that option."""
    code = f"import sys, pytest_attnperf.session.{name}; print(*(m for m in sys.modules if 'attnperf.session.' in m))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert f"pytest_attnperf.session.{name}" in loaded
    assert not [module for module in loaded if module.split(".")[2] in OFF]
