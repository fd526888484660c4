"""Whole documents: a real report whose mistakes are known, and the same with figures that hold."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.records.profiles import ProfileFinding
from pytest_attnperf.tools.profilers.claims.claims_page import assess_report, read_claims

ROOT = Path(__file__).parents[4]
REPORT = ROOT / "examples/claims/flash_attention_report.json"
DATA = ROOT / "tests/data/claims"


@cache
def findings_of(path: Path) -> tuple[ProfileFinding, ...]:
    """What is found in a document."""
    return assess_report(read_claims(path))


def one(path: Path, rule: str, part: str = "") -> ProfileFinding:
    """The finding of that rule whose text has `part`."""
    fitting = [found for found in findings_of(path) if found.rule == rule and part in found.text]
    assert len(fitting) == 1, [found.text for found in findings_of(path) if found.rule == rule]
    return fitting[0]


WRONG = {
    "waves": "256 threads are 8 waves of 32 (4 only in wave64)",
    "bound slots": "4 workgroups of 8 waves per CU (32 waves), 8 per WGP",
    "limit LDS per CU": "128 KiB per WGP, 64 KiB per CU",
    "bound lds": "42 workgroups of 8 waves per CU (336 waves), 85 per WGP; 32 as the hardware rounds LDS up; wave "
    "slots bind first, at 4",
    "limit VGPRs per wave": "256 VGPRs per wave addressable, 1,536 VGPRs per SIMD lane, handed out in granules of 24",
    "bound vgprs": "1,536 / 24 = 64, capped at 16 waves per SIMD",
    "sgprs": "SGPRs are counted per wave, always 128 for each on gfx1151, which is never a limit",
    "occupancy measured": "calculated, an upper bound: no hardware counter was read",
    "passes": "75 calls = 5 x 15 layers: 5 forward passes",
    "rate of computing": "805.3 MFLOP per call in 31.3 us are 25.7 TFLOP/s nominal; 457.5 GFLOP/s would be 14.3 MFLOP "
    "per call, about one sequence (12.58 MFLOP) of 64",
    "bandwidth": "28.8 KB per call, where inputs and output alone are 25.2 MB",
    "intensity of the rates": "457.5 GFLOP/s / 0.92 GB/s = 497 FLOP/B, 18.7 times apart",
    "intensity of the work": "= 32 FLOP/B with the least traffic",
    "own roof": "457.5 GFLOP/s / 5,639 GFLOP/s = 8.11% of its own roof, which the report does not give",
    "peak f16": "a measured ceiling, not the peak: 36.9 TFLOPS is 62.1% of 59.4 TFLOP/s by the data sheet "
    "(40 CU x 512 FLOP per clock x 2.9 GHz)",
    "peak DRAM": "a measured ceiling, not the peak: 212 GB/s is 82.8% of 256 GB/s",
    "nature of Memory Copy": "304 copies (__amd_rocclr_copyBuffer, 1.22 ms) + 400 kernels that convert between types "
    "(copyTypeConverted, 4.19 ms)",
    "parts of the gain": "reach 4% at most",
}
"""Every contradiction of the report by its rule, with the figures that it must name."""

OPEN = {
    "evidence of cache hit rate": "no hardware counter was read",
    "faster than memory": "803 GB/s, the device has 256 GB/s. Either they come from a cache (they fit the 32 MiB "
    "cache), or the work is not done",
    "bound by instruction latency": "by work and time cache-resident: 803.2 GB/s exceed memory's 256 GB/s (DRAM, peak)",
    "evaluations within GPU time": "5 passes of 64 in 157.2 ms of GPU time are 2,036 evaluations/s at most",
    "registers": "8 VGPRs are one granule",
    **{
        f"not bound by {what}": "by work and time cache-resident, but a kernel with one granule of registers may"
        for what in ("compute", "memory", "occupancy")
    },
    "sum of calls": "7 rows add up to 1,953 calls",
}
"""What the report leaves open, with what speaks against it."""

RIGHT = [
    ("limit waves per CU", "32 waves per CU"),
    ("threads", "256 threads"),
    ("occupancy", "100% of the wave slots at most"),
    ("total time", "75 x 31.3 us = 2.35 ms"),
    ("launch", "4 x 24 x 64 = 6,144 workgroups"),
    ("share of computing", "457.5 GFLOP/s / 36,900 GFLOP/s = 1.24%"),
    ("share of bandwidth", "0.92 GB/s / 212 GB/s = 0.434%"),
    ("memory roof", "212 GB/s x 26.6 FLOP/B = 5,639 GFLOP/s"),
    ("sum of times", "157.16 ms"),
    ("sum of percentages", "100.1%: within the rounding of 7 figures, no error"),
    ("members of Memory Copy", "= 704 calls"),
    ("ratio", "121.89 ms / 2.35 ms = 51.87"),
    ("ratio", "672 GB/s / 212 GB/s = 3.17"),
    ("ratio", "130.5 TFLOPS / 36.9 TFLOPS = 3.537"),
    ("ratio", "4,000 nps / 2,333 nps = 1.715"),
    ("gain overall", "1 / (1 - 1.5%) - 1 = 1.52%"),
    ("gain overall", "+2-4% on 1.5% of the time are 0.029% to 0.058% overall"),
    ("gain overall", "+1-3% on 1.5% of the time are 0.015% to 0.044% overall"),
    ("gain overall", "+1-2% on 1.5% of the time are 0.015% to 0.029% overall"),
]


@pytest.mark.parametrize("rule", WRONG)
def test_mistake_of_the_report_is_found(rule: str) -> None:
    """Each known mistake is contradicted once, with the figures that contradict it."""
    found = one(REPORT, rule)
    assert found.holds is False
    assert WRONG[rule] in found.should
    assert found.text == f"{found.said}: {found.should}"


def test_report_has_no_other_mistake() -> None:
    """Nothing else of the report is called wrong."""
    assert {found.rule for found in findings_of(REPORT) if found.holds is False} == WRONG.keys()


@pytest.mark.parametrize("rule", OPEN)
def test_open_claim_of_the_report_stays_open(rule: str) -> None:
    """What nothing in the document decides is neither right nor wrong, and says what speaks against it."""
    found = one(REPORT, rule)
    assert found.holds is None
    assert OPEN[rule] in found.text


@pytest.mark.parametrize(("rule", "text"), RIGHT)
def test_right_figure_of_the_report_holds(rule: str, text: str) -> None:
    """What is right is said to be right, with its arithmetic."""
    assert one(REPORT, rule, text).holds is True


def test_corrected_report_has_no_contradiction() -> None:
    """The same kernel with the figures that should have been said contradicts nothing."""
    assert [found.text for found in findings_of(DATA / "corrected.json") if found.holds is False] == []
    assert sum(found.holds is True for found in findings_of(DATA / "corrected.json")) > 30


MUTATIONS: list[tuple[str, object, str]] = [
    ("device.peaks.2.rate", "65.0 TFLOP/s", "peak f16"),
    ("device.peaks.2.rate", "59.4 GB/s", "peak f16"),
    ("device.peaks.3.rate", "300 GB/s", "peak DRAM"),
    ("device.limits.0.most", "128 KB", "limit LDS per CU"),
    ("device.limits.0.per", "wave", "limit LDS per wave"),
    ("device.limits.3.most", "20 waves", "limit waves per SIMD"),
    ("kernel.threads.count", 512, "threads"),
    ("kernel.waves.count", 4, "waves"),
    ("kernel.sgprs.per", "workgroup", "sgprs"),
    ("bounds.0.workgroups", 43, "bound lds"),
    ("bounds.0.waves", 340, "bound lds"),
    ("bounds.1.waves", 64, "bound vgprs"),
    ("bounds.2.workgroups", 8, "bound slots"),
    ("bounds.3.workgroups", 4, "bound slots"),
    ("occupancy.percent", "75%", "occupancy"),
    ("occupancy.word", "measured", "occupancy measured"),
    ("model.passes.count", 3, "passes"),
    ("model.tokens", 128, "rate of computing"),
    ("performance.total.time", "2.53 ms", "total time"),
    ("performance.computing.rate", "12.8 TFLOP/s", "rate of computing"),
    ("performance.computing.rate", "60.1 TFLOP/s", "peak exceeded"),
    ("performance.computing.percent", "45%", "share of computing"),
    ("performance.moving.rate", "80.3 GB/s", "bandwidth"),
    ("performance.moving.percent", "310%", "share of bandwidth"),
    ("performance.intensity.intensity", "26.6 FLOP/B", "intensity of the work"),
    ("performance.memory_roof.rate", "8,129 GFLOP/s", "memory roof"),
    ("performance.own_roof.percent", "31.4%", "own roof"),
    ("performance.own_roof", None, "own roof"),
    ("table.total.time", "157.61 ms", "sum of times"),
    ("table.calls.count", 1935, "sum of calls"),
    ("table.rows.0.percent", "76.7%", "percentage of rocBLAS GEMM"),
    ("table.rows.4.members.0.calls", 305, "members of Memory Copy"),
    ("table.rows.4.members.0.time", "1.32 ms", "time of the members of Memory Copy"),
    ("table.rows.5.nature", "copy", "nature of Conversion"),
    ("ratios.0.ratio", "52.9x", "ratio"),
    ("ratios.0.bottom", "2.35 GB/s", "ratio"),
    ("gains.0.whole", "+7.4%", "parts of the gain"),
    ("gains.0.share", "1.5%", "gain beyond the share"),
    ("speedups.0.overall", "1.9%", "gain overall"),
    ("speedups.1.overall", "+0.3-0.6%", "gain overall"),
]


@pytest.mark.parametrize(("path", "value", "rule"), MUTATIONS, ids=[f"{path}={value}" for path, value, _ in MUTATIONS])
def test_changed_figure_is_caught(tmp_path: Path, path: str, value: object, rule: str) -> None:
    """A single wrong figure in the corrected report is contradicted by the rule that it breaks."""
    document = copy.deepcopy(_corrected())
    *steps, last = path.split(".")
    place: Any = document
    for step in steps:
        place = place[int(step)] if step.isdigit() else place[step]
    place[last] = value
    (tmp_path / "claims.json").write_text(json.dumps(document))
    found = assess_report(read_claims(tmp_path / "claims.json"))
    assert rule in {finding.rule for finding in found if finding.holds is False}


@cache
def _corrected() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((DATA / "corrected.json").read_text())
    return document


def test_speedups_from_unrounded_times_are_no_errors() -> None:
    """All 18 printed speedups lie within the intervals that three decimals of a millisecond allow."""
    ratios = [found for found in findings_of(DATA / "speedups.json") if found.rule == "ratio"]
    assert len(ratios) == 18
    assert all(found.holds for found in ratios)
    beside = next(found for found in ratios if "3.86x over 0.897" in found.text)
    assert beside.text.endswith("0.897 ms / 0.232 ms = 3.866 (3.856 to 3.877 by their decimals)")


def test_elements_that_are_called_bytes_are_found() -> None:
    """128 x 256 + 64 x 256 elements of two bytes are 98,304 bytes, not 49,152."""
    found = one(DATA / "speedups.json", "size of tiles", "Original")
    assert found.holds is False
    assert found.should.endswith("elements of f16 are 98,304 bytes; 49,152 is the number of elements")


def test_factor_below_one_that_is_called_slower_is_found() -> None:
    """'0.99x slower' is right as a quotient and wrong as a sentence."""
    found = one(DATA / "speedups.json", "wording of the ratio")
    assert found.holds is False
    assert found.should.startswith("1.3% slower")
