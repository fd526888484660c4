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


def test_verdict_that_no_figure_decides_stays_open() -> None:
    """At 21 % of the peak counters would decide; where some were read, their values are asked for."""
    found = found_in({"bound": "memory", "counters": ["MfmaUtil"]}, performance=taking("1.002 ms"))
    assert found.holds is None
    assert "274.4 TFLOP/s, 21 % of 1307 TFLOP/s (f16 matrix, peak)" in found.text
    assert "based on MfmaUtil, whose values are not given; to decide: attnperf doctor --calibrate" in found.text


@pytest.mark.parametrize("denied", [True, False])
@pytest.mark.parametrize(("time", "shown"), [("1.002 ms", "by work and time not decidable from this data"), ("", "")])
def test_instruction_latency_stays_open(time: str, shown: str, denied: bool) -> None:
    """Work, time and launches neither confirm nor refute that instructions wait for one another: the finding is open,
    and names the trace, the counters and the experiment that would decide."""
    document = {"performance": taking(time)} if time else {}
    found = found_in({"bound": "instruction latency", "denied": denied, "counters": ["MfmaUtil"]}, **document)
    assert found.holds is None
    assert found.should == "no stall was measured"
    assert shown in found.text
    assert "based on MfmaUtil, whose values are not given; to decide: a thread trace (rocprofv3 --att)" in found.text
    assert found.text.endswith("whether the same work becomes faster with more independent instructions in a wave")


def test_a_call_at_its_roof_is_not_bound_by_instruction_latency() -> None:
    """At 53 % of the peak arithmetic takes the time: there the claim is wrong, and its denial right."""
    assert found_in({"bound": "instruction latency"}, performance=taking("400 us")).holds is False
    assert found_in({"bound": "instruction latency", "denied": True}, performance=taking("400 us")).holds is True


@pytest.mark.parametrize(
    ("arch", "words"), [("sm_90", "Nsight Compute"), ("gfx1151", "rocprofv3 --att"), ("cpu-x86_64", "of a wave stalls")]
)
def test_what_shows_stalls_is_named_for_the_device(arch: str, words: str) -> None:
    """NVIDIA has warp states, AMD a thread trace; another device is told what to look for."""
    found = found_in({"bound": "instruction latency"}, device={"arch": arch})
    assert words in found.text.partition("to decide: ")[2]


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


@pytest.mark.parametrize("said", [{"bound": "compute"}, {"bound": "memory"}, {"bound": "memory", "denied": True}])
@pytest.mark.parametrize("bound_by", ["registers", "memory"])
def test_a_verdict_on_doubted_work_is_open(said: dict[str, Any], bound_by: str) -> None:
    """Where registers or the rate say that a call may compute nothing, work and time decide nothing, unless outputs
    were compared with a reference."""
    kernel: dict[str, Any] = {"family": "attention", "workgroup": [256, 1, 1]}
    if bound_by == "registers":
        kernel["vgprs"] = {"said": "8 VGPRs", "count": 8}
    document = {"performance": taking("400 us" if bound_by == "registers" else "10 us"), "kernel": kernel}
    found = found_in(said, **document)
    assert found.holds is None
    assert "by work and time" in found.text
    if bound_by == "registers":
        checked = found_in(said, **{**document, "kernel": {**kernel, "outputs_checked": True}})
        assert checked.holds is (said["bound"] == "compute" or "denied" in said)
