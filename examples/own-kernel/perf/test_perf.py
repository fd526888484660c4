"""Proven right, timed, and held against baselines/: pytest --attnperf perf/test_perf.py"""

import pytest
import torch
from own_kernel import plain_rms_norm, rms_norm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("columns", [1024, 4096])
def test_rms_norm(attnperf, columns):
    def make_inputs():  # torch is seeded before each call
        x = torch.randn(1024, columns, dtype=torch.bfloat16, device=DEVICE)
        return x, torch.rand(columns, dtype=torch.bfloat16, device=DEVICE)

    attnperf.gate("own_kernel.rms_norm", rms_norm, reference=plain_rms_norm, inputs=make_inputs)
