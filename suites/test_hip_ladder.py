"""The HIP ladder: every step, the staged pipeline, and what a library does, on the same workloads.

`attnperf report --by step .attnperf/results.json` prints the table of a run of this file.
"""

import pytest

from suites.hip_workloads import HIP_LADDER, HIP_LARGE, HIP_SEED, HIP_SHAPES, HIP_SMALL

LADDER = ["hip", "native.sdpa_flash"]
"""Every step that is a backend of the family, and a library."""

NIGHTLY = [*HIP_LARGE, *HIP_SHAPES, f"hip.wgmma-{HIP_SEED[0].id}"]
"""No time of hip.wgmma is stored yet, so that other runs would have nothing to compare it with."""


@pytest.mark.attnperf(family="prefill", workloads=HIP_LADDER, nightly=NIGHTLY, cpu=HIP_SMALL, backends=LADDER)
def test_hip_ladder(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)
