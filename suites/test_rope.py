"""Rotary position embedding: every backend on every workload."""

import pytest

from pytest_attnperf.workloads.rope import Rope

ROPE = [
    Rope.parse_line(line)
    for line in (
        "b=1,s=256,h=4,hk=2,d=64,f32",
        "b=4,s=4096,h=32,hk=8,d=128,bf16",
        "b=4,s=8192,h=64,hk=8,d=128,bf16",
        "b=8,s=4096,h=12,d=80,f16",
        "b=8,s=2048,h=16,d=256,f16,interleaved",
    )
]
"""Small; Llama 3 8B and 70B (arXiv:2407.21783, table 3); heads of 80, no power of two; and GPT-J's heads of 256, all
of a head rotated."""


@pytest.mark.attnperf(family="rope", workloads=ROPE, nightly=ROPE[2:], cpu=ROPE[:1])
def test_rope(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)
