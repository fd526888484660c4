"""How large the results of a run are: they are kept, sent and read by thousands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_attnperf.reports.files import json_results

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "results_size.py"
UNTIMED_BYTES_MAX, TIMED_BYTES_MAX = 2048, 8192

SUITE = """
import pytest, torch

def make_inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(32, 32, generator=generator), torch.randn(32, 32, generator=generator)

def plain(a, b):
    return torch.relu(a @ b)

@pytest.mark.parametrize("number", range(8))
@pytest.mark.attnperf(timed=False)
def test_untimed(attnperf, number):
    attnperf.gate("mine", plain, reference=plain, inputs=make_inputs)

@pytest.mark.parametrize("number", range(1))
def test_timed(attnperf, number):
    attnperf.gate("mine", plain, reference=plain, inputs=make_inputs)
"""


def test_a_case_takes_few_bytes(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, own_process: None) -> None:
    """At most 2 kB for a case that is not timed and 8 kB for a timed one, as the program prints."""
    monkeypatch.delenv("CI", raising=False)
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(test_mine=SUITE)
    result = pytester.runpytest_subprocess("-p", "no:randomly", "--attnperf", "--attnperf-device=cpu", timeout=300)
    path = pytester.path / ".attnperf" / "results.json"
    run = json_results.read(path)
    assert [len(check.figures) for case in run.cases for check in case.checks] == [3] * 9, result.stdout.str()
    said = subprocess.run([sys.executable, PROGRAM, path], capture_output=True, text=True, check=True, timeout=60)
    heads = [line.split() for line in said.stdout.splitlines() if line.endswith("bytes each:")]
    sizes = {words[2]: int(words[4]) for words in heads}
    assert 0 < sizes["untimed"] <= UNTIMED_BYTES_MAX
    assert sizes["untimed"] < sizes["timed"] <= TIMED_BYTES_MAX
    assert 8 * sizes["untimed"] + sizes["timed"] == pytest.approx(path.stat().st_size, abs=9)
