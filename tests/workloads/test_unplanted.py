"""Whether a workload's inputs are planted is what it says: the name of its check is printed and stored."""

from __future__ import annotations

from typing import Any

import torch

from pytest_attnperf.workloads.families import Families

IDS = (
    "prefill-b1-s64-h1-d16-f16", "decode-b1-kv64-h2-hk1-d16-f16", "gemm-m64-n64-k64-f16", "softmax-r23-c128-bf16",
    "rmsnorm-r17-c200-bf16-residual", "layernorm-r23-c200-bf16", "bandwidth-copy-kib96-bf16",
    "rope-b1-s8-h1-d8-f32", "causal_mask-b1-s40-h2-f32",
)  # fmt: skip


def test_a_family_that_plants_nothing_says_why() -> None:
    """In each of these families planted inputs differ from others, or `unplanted` has a reason."""
    told = {text: compare(Families().parse_workload(text)) for text in IDS}
    assert sum(not differs for differs, _ in told.values()) == 3
    assert all(differs is not bool(why) for differs, why in told.values()), told


def compare(workload: Any) -> tuple[bool, str]:
    """Whether planting changes an input, and why it does not."""
    plain, planted = (workload.make_inputs(3, "cpu", planted=flag) for flag in (False, True))
    return not all(map(torch.equal, plain, planted)), str(getattr(workload, "unplanted", ""))
