"""Compiled kernels explained: what the verdict means, and every figure beside the stored one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.code import CodeFinding, CodeResult, KernelCode, Occupancy
from pytest_attnperf.reports.explain.code_words import explain_code
from pytest_attnperf.reports.explain.explain_page import build_code_values, render_code_explanation
from tests import recorded_cases as recorded

CODE = KernelCode(
    "k", "gfx942", 96, 0, 96, 40, 0, 0, 0, 8192, 0, 64, 256, 256, 64, None, False, 4096, "a" * 64,
    instructions={"matrix": 64},
)  # fmt: skip
WORSE = CodeResult(
    CaseKey("code_objects", "triton.flash", "bm128", "gfx942"), "kernels.py::k[bm128]", Verdict.WORSE,
    "occupancy: 4 -> 3 waves per SIMD", fails=True,
    findings=(CodeFinding("vgprs", False, "96", "130", "96 -> 130 VGPRs"),
              CodeFinding("occupancy", True, "4", "3", "occupancy: 4 -> 3 waves per SIMD")),
    code=replace(CODE, vgprs=130, isa_hash="b" * 64), stored=CODE, compiler="triton 3.6.0",
    stored_compiler="triton 3.6.0",
    occupancy=Occupancy(3, 3.0, 8, 3, 4, {"vgprs": 3}, ("vgprs",)),
    stored_occupancy=Occupancy(4, 4.0, 8, 4, 4, {"vgprs": 4}, ("vgprs",)),
)  # fmt: skip


@pytest.mark.parametrize("verdict", [v for v in Verdict if v not in (Verdict.SLOWER, Verdict.FASTER)])
def test_every_verdict_of_a_kernel_has_words(verdict: Verdict) -> None:
    """Sentences, its summary among them, and the command that compiles it again."""
    words = explain_code(replace(WORSE, verdict=verdict))
    assert 3 <= len(words.sentences) <= 6
    assert words.sentences[1] == "What was found: occupancy: 4 -> 3 waves per SIMD."
    assert words.steps[0].command == "pytest 'kernels.py::k[bm128]'"


def test_a_kernel_that_became_worse_is_shown_beside_the_stored_one() -> None:
    """Registers, waves and machine code of both sides; what fails stands before what only warns."""
    text = render_code_explanation(WORSE, recorded.run_of(), "r.json", width=80)
    rows = {line.strip().partition("  ")[0]: line.split(maxsplit=1)[1] for line in text.splitlines() if " -> " in line}
    assert rows["VGPRs"].endswith("96 -> 130")
    assert rows["waves per SIMD"].endswith("4 of 8 -> 3 of 8")
    assert "aaaaaaaaaaaa -> bbbbbbbbbbbb" in text
    assert text.index("fails: occupancy") < text.index("warning: 96 -> 130 VGPRs")
    assert "attnperf occupancy --arch gfx942 --vgprs 130 --agprs 0 --sgprs 40 --lds 8192 --threads 256" in text
    assert "It is not a measured slowdown" in " ".join(text.split())
    assert build_code_values(WORSE)["verdict"] == "WORSE"
