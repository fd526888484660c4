from __future__ import annotations

import pytest

from kernels.limits import FLOATS, AttentionLimits, refusal_reasons
from pytest_attnperf.workloads.prefill import Prefill


@pytest.mark.parametrize(
    ("text", "limits", "reason"),
    [
        ("d64-f8e4m3", AttentionLimits("it", dtypes=FLOATS), "it takes bf16, f16, f32, tf32, not f8e4m3"),
        (
            "d64-w4-f16-causal",
            AttentionLimits("it", window=False),
            "it takes no sliding window, this workload has one of 4 keys",
        ),
        (
            "d64-dv32-f16",
            AttentionLimits("it", head_dim_v=False),
            "it takes one head dimension for q, k and v, not 64 and 32",
        ),
        ("d64-f16-alibi", AttentionLimits("it", alibi=False), "it takes no ALiBi slopes, this workload has them"),
        ("d64-f16-bias", AttentionLimits("it", bias=False), "it takes no bias matrix, this workload has one"),
        (
            "d64-i8-pv16",
            AttentionLimits("it", int8=frozenset({"", "kv8"})),
            "it takes i8 only as kv8, qkv8, not as pv16",
        ),
        ("d64-i8", AttentionLimits("it", int8=frozenset({"kv8"})), "it takes i8 only as kv8, not as qkv8"),
        ("d64-i8-kv8", AttentionLimits("it", dtypes=FLOATS, int8=frozenset()), "it takes bf16, f16, f32, tf32, not i8"),
        ("d64-f16-lse", AttentionLimits("it", no_lse="it gives no log-sum-exp"), "it gives no log-sum-exp"),
    ],
)
def test_each_limit_is_refused_by_one_reason(text: str, limits: AttentionLimits, reason: str) -> None:
    """What a limit excludes has one reason, which names it; without limits nothing is refused."""
    workload = Prefill.parse(f"prefill-b1-s8-h2-{text}")
    assert refusal_reasons(workload, limits) == [reason]
    assert refusal_reasons(workload, AttentionLimits("it")) == []
