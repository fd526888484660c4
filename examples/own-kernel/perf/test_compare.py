"""Implementations of one problem side by side; perf/conftest.py registers them."""

import pytest


@pytest.mark.attnperf(family="rmsnorm", workloads=["rmsnorm-r64-c1000-bf16", "rmsnorm-r8192-c4096-bf16"])
def test_compare(attnperf, backend, workload):
    attnperf.run(backend, workload)
