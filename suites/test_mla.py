"""Multi-head latent attention: every backend on every workload."""

import pytest

from suites.mla_workloads import MLA, MLA_PERF_KERNELS

PERF_KERNELS = "triton.mla_perf_kernels"


@pytest.mark.attnperf(
    family="mla", workloads=MLA, nightly=MLA[1:4], cpu=[f"native.mla_absorb-{MLA[0].id}"], without=[PERF_KERNELS]
)
def test_mla(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)


@pytest.mark.attnperf(
    family="mla",
    workloads=[MLA[0], *MLA_PERF_KERNELS],
    nightly=MLA_PERF_KERNELS,
    cpu=[MLA[0]],
    backends=[PERF_KERNELS],
)
def test_perf_kernels(attnperf, backend, workload):
    """The same in the configuration of AMD's perf-kernels, on a persistent grid: timed by nightly runs only."""
    attnperf.run(backend, workload)
