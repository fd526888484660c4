"""Multi-head latent attention: every backend on every workload."""

import pytest

from suites.mla_workloads import MLA


@pytest.mark.attnperf(family="mla", workloads=MLA, nightly=MLA[1:4], cpu=[f"native.mla_absorb-{MLA[0].id}"])
def test_mla(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)
