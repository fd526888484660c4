"""What a user types, on a CPU: rows whose bits depend on the batch, and processes that disagree; and their twins."""

from __future__ import annotations

import pytest

SUITE = """
import os
import torch

def make_inputs(seed):
    return torch.randn(6, 64), torch.randn(64, 32)

def reference(x, w):
    return x @ w

def product(row, w, splits):
    # In fp64 and rounded once for each split, so that no order of sums shows but theirs.
    parts = [(row[i::splits].double() @ w[i::splits].double()).float() for i in range(splits)]
    return torch.stack(parts).double().sum(0).float() if splits < 4 else parts[0] + parts[1] + parts[2] + parts[3]

def by_batch(x, w):
    return torch.stack([product(row, w, 4 if len(x) < 6 else 2) for row in x])

def by_place(x, w):
    return torch.stack([product(row, w, 4 if place % 2 else 2) for place, row in enumerate(x)])

def fixed(x, w):
    return torch.stack([product(row, w, 2) for row in x])

def by_process(x, w):
    # Right in every process, and the same in each of its calls; another element is rounded up in each.
    out = fixed(x, w)
    out.view(-1)[os.getpid() % out.numel()].mul_(1 + 2.0**-23)
    return out

def test_by_batch(attnperf):
    attnperf.gate("by_batch", by_batch, reference=reference, inputs=make_inputs, invariant=True)

def test_by_place(attnperf):
    attnperf.gate("by_place", by_place, reference=reference, inputs=make_inputs, invariant=True)

def test_fixed(attnperf):
    attnperf.gate("fixed", fixed, reference=reference, inputs=make_inputs, invariant=True)

def test_undeclared(attnperf):
    attnperf.gate("undeclared", by_batch, reference=reference, inputs=make_inputs)

def test_by_process(attnperf):
    attnperf.gate("by_process", by_process, reference=reference, inputs=make_inputs)

def test_misuse(attnperf):
    attnperf.gate("fixed", fixed, reference=reference, inputs=make_inputs, invariant="yes")
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with these functions."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(test_mine=SUITE)
    return pytester


def run(suite: pytest.Pytester, *words: str) -> pytest.RunResult:
    """Type `pytest --attnperf-device=cpu WORDS`."""
    return suite.runpytest_subprocess("-p", "no:randomly", "--attnperf-device=cpu", *words, timeout=500)


def test_rows_that_depend_on_the_batch_fail_where_invariance_is_declared(suite: pytest.Pytester) -> None:
    """A split count that follows the number of rows, or a row's place, is INCORRECT; the twin passes, and what is not
    declared is only told."""
    result = run(suite, "--attnperf-invariance", "-k", "not by_process")
    result.assert_outcomes(passed=2, failed=3, deselected=1)
    result.stdout.fnmatch_lines(
        [
            "INCORRECT: mine/gate/test_by_batch",
            "invariance, alone: 'out' is not what all rows together gave: * elements have other bits, by up to * ulp, "
            "most at [[]*]; its backend declares invariant=True, which promises the same bits",
            "INCORRECT: mine/gate/test_by_place",
            "*invariance, reversed: 'out' is not what all rows together gave: *",
            "*attnperf.gate(): invariant is 'yes', but must be True or False*",
            "invariance: gate gave the same bits in all parts of a batch in 1 of 4 cases; not in test_by_batch (within "
            "* ulp: alone, half), test_by_place (within * ulp: alone, reversed), test_undeclared (within * ulp: alone, "
            "half)",
        ]
    )


def test_a_declaration_is_proven_without_the_switch(suite: pytest.Pytester) -> None:
    """Only what is declared is tried then, whatever trials the run asks for."""
    result = run(suite, "--attnperf-trials=none", "-k", "by_batch or undeclared")
    result.assert_outcomes(passed=1, failed=1, deselected=4)
    result.stdout.fnmatch_lines(["INCORRECT: mine/gate/test_by_batch"])
    result.stdout.fnmatch_lines(["invariance: gate gave the same bits in all parts of a batch in 0 of 1 cases; *"])


def test_processes_that_disagree_are_told(suite: pytest.Pytester) -> None:
    """Each process repeats its own bits, and another one has others; the twin has the same in both."""
    words = ("--attnperf-calibrate=2", "--attnperf-determinism=3", "--attnperf-trials=none")
    result = run(suite, *words, "-k", "by_process or undeclared")
    result.assert_outcomes(passed=2, deselected=4)
    result.stdout.fnmatch_lines(
        [
            "determinism: gate gave the same bits in 3 calls in 2 of 2 cases",
            "determinism: gate gave the same bits in 2 processes in 1 of 2 cases; not in test_by_process",
        ]
    )
