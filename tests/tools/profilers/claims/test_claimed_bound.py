from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pytest_attnperf.records.profiles import ProfileFinding
from pytest_attnperf.tools.profilers.claims.claim_rules import make_known
from pytest_attnperf.tools.profilers.claims.claimed_bound import assess_claims
from pytest_attnperf.tools.profilers.claims.claimed_figures import PrintedFigure
from pytest_attnperf.tools.profilers.claims.records import Claims

MODEL = {"sequences": 4, "tokens": 4096, "heads": 8, "head_dim": 256, "causal": True}
"""274.9 GFLOP per call."""


def found_in(said: dict[str, Any], **document: Any) -> ProfileFinding:
    """The finding of one verdict about attention on an MI300X."""
    whole = {
        "schema": 1,
        "device": {"arch": "gfx942", "product": "MI300X"},
        "kernel": {"family": "attention"},
        "model": MODEL,
        "verdicts": [{"said": "so it is", **said}],
    }
    hook = lambda kind, value: kind.parse(value) if issubclass(kind, PrintedFigure) else value  # noqa: E731
    [found] = assess_claims(make_known(msgspec.convert(whole | document, type=Claims, dec_hook=hook)))
    return found


def taking(time: str) -> dict[str, Any]:
    """Claims of a call's time."""
    return {"per_call": {"said": f"{time} per call", "time": time}}


@pytest.mark.parametrize(
    ("bound", "denied", "holds"),
    [("compute", False, True), ("compute", True, False), ("memory", False, False), ("memory", True, True)],
)
def test_verdict_is_held_against_the_class(bound: str, denied: bool, holds: bool) -> None:
    """687 TFLOP/s are 53 % of the peak: bound by compute, and by nothing else."""
    found = found_in({"bound": bound, "denied": denied}, performance=taking("400 us"))
    assert found.holds is holds
    assert "by work and time compute" in found.text
    assert found.rule == f"{'not ' if denied else ''}bound by {bound}"


@pytest.mark.parametrize("bound", ["instruction latency", "memory"])
def test_verdict_that_no_figure_decides_stays_open(bound: str) -> None:
    """At 21 % of the peak counters would decide; where some were read, their values are asked for."""
    found = found_in({"bound": bound, "counters": ["MfmaUtil"]}, performance=taking("1.002 ms"))
    assert found.holds is None
    assert "274.4 TFLOP/s, 21 % of 1307 TFLOP/s (f16 matrix, peak)" in found.text
    assert "based on MfmaUtil, whose values are not given; to decide: attnperf doctor --calibrate" in found.text


@pytest.mark.parametrize(
    "document",
    [{}, {"performance": taking("400 us"), "model": {}}, {"performance": taking("400 us"), "device": {"arch": "gfx9"}}],
    ids=["time", "work", "device"],
)
def test_verdict_needs_work_time_and_device(document: dict[str, Any]) -> None:
    """Without one of them a verdict is open, and that is said."""
    found = found_in({"bound": "memory"}, **document)
    assert found.holds is None
    assert found.text.endswith("the work of a call, its time or the device is not given")
