"""examples/typed, run as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "typed" / "test_typed.py"


def test_the_typed_example_passes(pytester: pytest.Pytester, own_process: None) -> None:
    """Several outputs, in-place outputs, gradients, costs, a tolerance, a bare comparison and a bare time: all right,
    and checked by `mypy --strict` with the package."""
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(test_typed=EXAMPLE.read_text())
    result = pytester.runpytest_subprocess("-p", "no:randomly", "--attnperf-device=cpu", timeout=300)
    result.assert_outcomes(passed=5)
