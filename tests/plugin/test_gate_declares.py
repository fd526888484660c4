"""`attnperf.gate(..., kernels=, operators=, never=)`: what a function is named after must run."""

from __future__ import annotations

import pytest

SUITE = """
import torch

def make_inputs(seed):
    return torch.randn(128, 128)

def plain(x):
    return x * torch.sigmoid(x)

try:
    from not_installed_anywhere import silu
except ImportError:
    def silu(x):
        return x * torch.sigmoid(x)

def fused(x):
    return torch.nn.functional.silu(x)

def test_falls_back(attnperf):
    attnperf.gate("mine", silu, reference=plain, inputs=make_inputs, operators=["aten::silu"])

def test_says_nothing(attnperf):
    attnperf.gate("mine", silu, reference=plain, inputs=make_inputs)

def test_never(attnperf):
    attnperf.gate("mine", silu, reference=plain, inputs=make_inputs, never="aten::sigmoid")

def test_honest(attnperf):
    attnperf.gate(
        "mine", fused, reference=plain, inputs=make_inputs, operators="aten::silu", never=["aten::sigmoid"],
        kernels=["silu"],
    )

def test_no_pattern(attnperf):
    attnperf.gate("mine", fused, reference=plain, inputs=make_inputs, never=["silu("])
"""


def test_a_fallback_fails_where_it_is_declared(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, torch_cases: object
) -> None:
    """An import that fails and is replaced is INCORRECT with what ran; a kernel of a GPU is not asked for on a CPU."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(test_mine=SUITE)
    result = pytester.runpytest_subprocess("-p", "no:randomly", "--attnperf-device=cpu", timeout=300)
    result.assert_outcomes(passed=2, failed=3)
    result.stdout.fnmatch_lines(
        [
            "INCORRECT: mine/gate/test_falls_back",
            "what ran: mine declares the operator 'aten::silu', but it did not run; what ran is *sigmoid*",
            "INCORRECT: mine/gate/test_never",
            "what ran: mine declares that nothing named 'aten::sigmoid' runs, but aten::sigmoid did: *",
            "ERROR: mine/gate/test_no_pattern",
            "call: attnperf.gate(): never= takes regular expressions, and 'silu(' is not one; *",
        ]
    )
