"""The kernel compiled for GPUs that need not be here: registers, spills, occupancy. perf/conftest.py declares it."""

import pytest


@pytest.mark.attnperf_code
def test_code_object(code_object, kernel_build):
    code_object.gate(kernel_build)
