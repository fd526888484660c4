"""Seeds decide what is timed and what is checked."""

from __future__ import annotations

from pytest_attnperf.measure.seeds import timed_seed
from pytest_attnperf.workloads.prefill import Prefill


def test_the_timed_seed_is_the_workloads_own() -> None:
    """The seed follows from the id alone and fits 32 bits; it is fixed, because stored times depend on it."""
    workload = Prefill.parse("prefill-b1-s64-h1-d16-f16")
    assert timed_seed(workload) == 83623564
    assert timed_seed(Prefill(1, 64, 1, 16)) == timed_seed(workload)
    assert timed_seed(Prefill(1, 64, 1, 16, causal=True)) != timed_seed(workload)
